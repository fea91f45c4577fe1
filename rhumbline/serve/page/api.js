// Requests to the service. Every error becomes an Error with the sentence of the server.

let token = sessionStorage.getItem("token") ?? "";

export function setToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: headers(options.headers) });
  } catch {
    throw new ServiceError(0, "The server does not answer. Is it still running?");
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new ServiceError(answer.status, problem.detail ?? `The server answers ${answer.status}.`);
  }
  return answer;
}

const json = async (path, options) => (await ask(path, options)).json();

const post = (path, body) =>
  json(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

export const submit = (body) => post("/v1/jobs", body);
export const listJobs = async () => (await json("/v1/jobs?limit=30")).jobs;
export const getJob = (id) => json(`/v1/jobs/${id}`);
export const stopJob = (id) => json(`/v1/jobs/${id}`, { method: "DELETE" });
export const getLayout = (id) => json(`/v1/jobs/${id}/layout`);
export const getLatents = (id) => json(`/v1/jobs/${id}/latents`);
export const getLandscape = (id, extent) => json(`/v1/jobs/${id}/landscape?extent=${extent}`);
export const decodeLatent = (id, number) => post(`/v1/jobs/${id}/decode`, { number });

// Saves a file of a job under the name that the server gives it.
export async function download(path) {
  const answer = await ask(path);
  const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name ? name[1] : "plan";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Calls `onJob` with each state of a job until it has ended. EventSource cannot send a token,
// so the stream is read by fetch. A lost connection is opened again.
export async function follow(id, onJob, signal) {
  for (let pause = 500; !signal.aborted; pause = Math.min(5000, 2 * pause)) {
    try {
      const answer = await ask(`/v1/jobs/${id}/events`, { signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        pause = 500;
        rest += value;
        const events = rest.split("\n\n");
        rest = events.pop();
        for (const event of events) {
          const data = /^data: (.*)$/m.exec(event);
          if (!data) continue;
          const job = JSON.parse(data[1]);
          onJob(job);
          if (isFinal(job)) return;
        }
      }
    } catch (error) {
      if (signal.aborted || (error.status >= 400 && error.status < 500)) return;
    }
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

export const isFinal = (job) => ["done", "interrupted", "failed"].includes(job.state);
