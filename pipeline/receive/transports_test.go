package receive_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/pipeline/pipelinetest"
)

// transport returns a function that sends a request once, to a receiver or its broker. It works until the test ends.
type transport func(tb testing.TB, receiver, broker string) func(context.Context, plogotlp.ExportRequest) error

func overHTTP(tb testing.TB, receiver, _ string) func(context.Context, plogotlp.ExportRequest) error {
	tb.Helper()
	send := poster(tb, receiver)
	return func(ctx context.Context, request plogotlp.ExportRequest) error {
		body, err := request.MarshalProto()
		if err != nil {
			return err
		}
		return send(ctx, "/v1/logs", "application/x-protobuf", body)
	}
}

// poster returns a function that sends a body once by HTTP.
func poster(tb testing.TB, receiver string) func(ctx context.Context, path, kind string, body []byte) error {
	tb.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	tb.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context, path, kind string, body []byte) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+receiver+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", kind)
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", answer.Status, text)
		}
		return err
	}
}

func overGRPC(tb testing.TB, receiver, _ string) func(context.Context, plogotlp.ExportRequest) error {
	tb.Helper()
	soon := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}
	conn, err := grpc.NewClient(receiver, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return func(ctx context.Context, request plogotlp.ExportRequest) error {
		_, err := plogotlp.NewGRPCClient(conn).Export(ctx, request, grpcGzip)
		return err
	}
}

func overNATS(tb testing.TB, _, broker string) func(context.Context, plogotlp.ExportRequest) error {
	tb.Helper()
	js := pipelinetest.Connect(tb, broker)
	return func(ctx context.Context, request plogotlp.ExportRequest) error {
		body, err := request.MarshalProto()
		if err != nil {
			return err
		}
		_, err = js.Publish(ctx, "otel_logs", body)
		return err
	}
}
