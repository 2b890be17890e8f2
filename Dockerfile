# syntax=docker/dockerfile:1.19.0
# The image has the program and the certificates of public authorities, and nothing else.

FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=true -ldflags "-s -w" -o /out/tributary ./cmd/tributary && \
    mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/tributary /tributary
# A volume that is empty takes the owner of this folder.
COPY --from=build --chown=65532:65532 /out/data /data
ENV TRIBUTARY_HTTP=:9464 TRIBUTARY_DATA=/data TRIBUTARY_LOG_FORMAT=json
USER 65532:65532
EXPOSE 9464
ENTRYPOINT ["/tributary"]
CMD ["run"]
