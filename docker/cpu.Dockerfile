# rhumbline on a CPU, from the root of a clone:
#
#   docker build -f docker/cpu.Dockerfile -t rhumbline .
#   docker run --rm -v "$PWD/examples:/data" rhumbline solve harbour100.tsp --seconds 10
#   docker run --rm -p 8400:8400 -v rhumb-jobs:/data rhumbline serve --host 0.0.0.0
FROM python:3.12-slim

# --build-arg TORCH_INDEX=... names PyTorch's index for CPUs. Without it, torch brings gigabytes of
# CUDA libraries, which a CPU does not need.
ARG TORCH_INDEX=

WORKDIR /opt/rhumbline
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY rhumbline rhumbline
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt '.[cpu,plots,serve]' \
    && useradd --create-home --uid 1000 rhumb \
    && install --directory --owner rhumb /data

# Compiled kernels are kept in the home of this user.
USER rhumb
WORKDIR /data
EXPOSE 8400
ENTRYPOINT ["rhumb"]
CMD ["info"]
