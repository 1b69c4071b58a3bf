# Dragoman in a container: one static binary, no shell, no root.
#
#   docker build -t dragoman .    # with podman or buildah: --format docker, for the health check
#   docker run -d --restart unless-stopped --stop-timeout 45 -v dragoman:/data \
#     -e TELEGRAM_BOT_TOKEN -e OPENAI_API_KEY -e DRAGOMAN_TIMEZONE=Europe/Berlin dragoman
#   docker logs -f NAME           # shows the code that makes you its owner
#
# Built with the tag "otlp": telemetry.otlp_endpoint, or
# -e OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318, has it send traces.
#
# A configuration file goes to /etc/dragoman/config.yaml. Any user id works
# (--user 12345): nothing in the image belongs to a particular one.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# The modules change less often than the source.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -tags otlp -trimpath -ldflags "-s -w -X main.release=$VERSION" -o /rootfs/dragoman ./cmd/dragoman
# The folders are laid out here because the image itself has no tools. /data is
# like /tmp, for whoever the container runs as; files in it are made 0600.
RUN mkdir -p /rootfs/data /rootfs/tmp /rootfs/etc/dragoman /rootfs/etc/ssl/certs \
 && chmod 1777 /rootfs/data /rootfs/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/

# Time zones are in the binary, certificates beside it; nothing else is needed.
FROM scratch
COPY --from=build /rootfs/ /
ENV XDG_CONFIG_HOME=/etc \
    DRAGOMAN_DATA_DIR=/data \
    DRAGOMAN_HEALTH_LISTEN=127.0.0.1:8081
USER 65532:65532
VOLUME /data
# The web chat, once WEBCHAT_LISTEN=0.0.0.0:8080 and WEBCHAT_TOKEN are set.
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=6s --start-period=60s CMD ["/dragoman", "health"]
ENTRYPOINT ["/dragoman"]
CMD ["gateway"]
