# Brokers in a container, in the place of apache/kafka too: docker build -t tidelog .
# Without a package index: wheels in ./wheels, and --build-arg PIP_NO_INDEX=1.
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
ARG PIP_NO_INDEX
ARG EXTRAS=control,metrics,s3,security
WORKDIR /source
COPY . .
RUN python3 -m venv /opt/tidelog \
    && /opt/tidelog/bin/pip install --no-cache-dir --find-links wheels ".[${EXTRAS}]"

FROM ${BASE}
RUN useradd --create-home --shell /bin/bash appuser \
    && mkdir -p /etc/confluent /etc/kafka/docker /mnt/shared/config /var/lib/kafka/data \
    && ln -s /etc/kafka/docker /etc/confluent/docker \
    && chown appuser /mnt/shared/config /var/lib/kafka/data
COPY --from=build /opt/tidelog /opt/tidelog
COPY container/ /etc/kafka/docker/
ENV PATH=/opt/tidelog/bin:$PATH
USER appuser
WORKDIR /home/appuser
# 9092 is for clients, 9990 for control calls over HTTP.
EXPOSE 9092 9990
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["/etc/kafka/docker/health"]
CMD ["/etc/kafka/docker/run"]
