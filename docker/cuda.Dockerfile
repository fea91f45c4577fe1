# rhumbline on an NVIDIA GPU, from the root of a clone. The host needs a driver and the NVIDIA
# container toolkit; the CUDA libraries come with torch.
#
#   docker build -f docker/cuda.Dockerfile -t rhumbline-cuda .
#   docker run --rm --gpus all rhumbline-cuda info
#   docker run --rm --gpus all -v "$PWD/examples:/data" rhumbline-cuda solve harbour100.tsp --seconds 10
FROM python:3.12-slim

# Triton compiles the code that launches kernels with a C compiler.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/rhumbline
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY rhumbline rhumbline
# torch chooses its Triton; the pin is for tests on machines without a GPU.
RUN grep -v '^triton' constraints.txt > pins.txt \
    && pip install --no-cache-dir -c pins.txt '.[cpu,plots,serve]' \
    && useradd --create-home --uid 1000 rhumb \
    && install --directory --owner rhumb /data

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Compiled kernels are kept in the home of this user.
USER rhumb
WORKDIR /data
EXPOSE 8400
ENTRYPOINT ["rhumb"]
CMD ["info"]
