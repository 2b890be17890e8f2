package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline/embedded"
	"tributary/pipeline/load"
	"tributary/pipeline/streams"
)

// benchProcess is a process that bench has started: this program with other arguments.
type benchProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer // its end ends a server
	log   strings.Builder
}

// startProcess starts this program. Its environment has no settings of a broker but url, unless
// that is a server of the user, whose credentials are there.
func startProcess(ctx context.Context, out io.Writer, environment []string, args ...string) (*benchProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &benchProcess{cmd: exec.CommandContext(ctx, self, args...)}
	p.cmd.Env = append(p.cmd.Environ(), environment...)
	p.cmd.Args[0] = "tributary"
	p.cmd.Stdout, p.cmd.Stderr = out, &p.log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 10 * time.Second
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	return p, nil
}

// stop ends a process and waits for it.
func (p *benchProcess) stop() error {
	if p == nil {
		return nil
	}
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended, which Wait reports
	return p.wait()
}

// kill ends a process at once.
func (p *benchProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// wait waits for the end of a process. The error has what the process has written.
func (p *benchProcess) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("tributary %s: %w: %s", strings.Join(p.cmd.Args[1:], " "), err, strings.TrimSpace(p.log.String()))
	}
	return nil
}

// cpu is the CPU time of a process that has ended, in seconds.
func (p *benchProcess) cpu() float64 {
	return (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()
}

// startBenchServer starts a server, and returns its address when it accepts connections.
func startBenchServer(ctx context.Context, dir string, sync bool) (*benchProcess, string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	p, err := startProcess(context.WithoutCancel(ctx), w, nil, "bench-server", "--data", filepath.Join(dir, "server"), fmt.Sprintf("--sync=%t", sync))
	w.Close()
	if err != nil {
		return nil, "", err
	}
	url, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(errors.New("the server has not started"), p.stop())
	}
	return p, strings.TrimSpace(url), nil
}

// startWorker starts a worker of a generation.
func (b *bench) startWorker(ctx context.Context, t streams.Topology, name string) (*benchProcess, error) {
	return startProcess(ctx, nil, b.environment("TRIBUTARY_GENERATION="+t.Generation, "TRIBUTARY_WORKER="+name, "TRIBUTARY_RAW=", "OTEL_SDK_DISABLED=true"), "run", "--server", b.url, "--log-level", "warn")
}

// startFloor starts the process that copies records: n of them, or those that arrive until it
// is stopped if n is 0.
func (b *bench) startFloor(ctx context.Context, n int) (*benchProcess, error) {
	return startProcess(ctx, nil, b.environment(), "bench-floor", "--server", b.url, fmt.Sprintf("--records=%d", n))
}

// environment is that of a process: without the settings of another broker, if bench has started
// the server.
func (b *bench) environment(more ...string) []string {
	if b.server == nil {
		return more
	}
	for _, env := range new(exec.Cmd).Environ() {
		if name, _, _ := strings.Cut(env, "="); strings.HasPrefix(name, "NATS_") {
			more = append(more, name+"=")
		}
	}
	return more
}

// defaultSync is the interval in which nats-server syncs its streams by default.
const defaultSync = 2 * time.Minute

// benchServerCommand is the server of bench in a process of its own.
func (a *app) benchServerCommand() *cobra.Command {
	var cfg embedded.Config
	var sync bool
	cmd := &cobra.Command{
		Use: "bench-server", Short: "The server of tributary bench", Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if !sync {
				cfg.SyncInterval = defaultSync
			}
			cfg.Listen = "127.0.0.1:0"
			srv, err := embedded.Start(cfg)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.stdout, srv.ClientURL())
			_, _ = io.Copy(io.Discard, a.stdin) // ends with the process that has started this one, whatever signal comes
			srv.Shutdown()
			srv.WaitForShutdown()
			return nil
		},
	}
	cmd.Flags().StringVar(&cfg.StoreDir, "data", "", "folder of the streams")
	cmd.Flags().BoolVar(&sync, "sync", false, "sync each commit")
	return cmd
}

// benchFloorCommand is the floor in a process of its own.
func (a *app) benchFloorCommand() *cobra.Command {
	var records int
	cmd := &cobra.Command{
		Use: "bench-floor", Short: "The floor of tributary bench", Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				if records > 0 {
					return load.Carry(ctx, js, records, false)
				}
				err := load.Carry(ctx, js, int(^uint(0)>>1), true)
				if ctx.Err() != nil {
					err = nil
				}
				return err
			})
		},
	}
	cmd.Flags().IntVar(&records, "records", 0, "end after so many records")
	a.serverFlag(cmd)
	return cmd
}
