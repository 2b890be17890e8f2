# The image of a release: the binary is built already. The other image is Dockerfile.
FROM golang:1.26.8-bookworm AS certificates
RUN mkdir -p /out/data

FROM scratch
ARG TARGETPLATFORM
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=certificates --chown=65532:65532 /out/data /data
COPY $TARGETPLATFORM/tributary /tributary
ENV TRIBUTARY_HTTP=:9464 TRIBUTARY_DATA=/data TRIBUTARY_LOG_FORMAT=json
USER 65532:65532
EXPOSE 9464
ENTRYPOINT ["/tributary"]
CMD ["run"]
