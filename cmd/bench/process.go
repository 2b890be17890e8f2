package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

// process is a process that bench started: the worker, or this program as server or floor.
type process struct {
	name  string // without flags, because a URL may have a password
	cmd   *exec.Cmd
	stdin io.Closer // closing it ends a server
	log   strings.Builder
}

// startProcess starts a command of a program. environment is added to the environment of bench.
func startProcess(ctx context.Context, out io.Writer, environment []string, program, command string, flags ...string) (*process, error) {
	p := &process{name: filepath.Base(program) + " " + command, cmd: exec.CommandContext(ctx, program, append([]string{command}, flags...)...)}
	p.cmd.Env = append(p.cmd.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = out, &p.log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 10 * time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// startSelf starts a hidden command of this program.
func startSelf(ctx context.Context, out io.Writer, command string, flags ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(ctx, out, nil, self, command, flags...)
}

// programVersion asks tributary for its version.
func programVersion(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s version: %w: name the program tributary with --program", program, err)
	}
	fields := strings.Fields(string(out)) // tributary VERSION, ...
	if len(fields) < 2 || fields[0] != "tributary" {
		return "", fmt.Errorf("%s is not tributary: name the program with --program", program)
	}
	return strings.TrimSuffix(fields[1], ","), nil
}

// stop ends a process and waits for it.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended; Wait reports why
	return p.wait()
}

// kill ends a process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// wait waits for the end of a process. The error has the log of the process.
func (p *process) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, err, strings.TrimSpace(p.log.String()))
	}
	return nil
}

// cpu returns the CPU time of an ended process, in seconds.
func (p *process) cpu() float64 {
	return (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()
}

// startServer starts a server and returns its address once it accepts connections.
func startServer(ctx context.Context, dir string, sync bool) (*process, string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	p, err := startSelf(context.WithoutCancel(ctx), w, serverName, "--data", filepath.Join(dir, "server"), fmt.Sprintf("--sync=%t", sync))
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
func (b *bench) startWorker(ctx context.Context, t streams.Topology, name string) (*process, error) {
	environment := b.environment("TRIBUTARY_GENERATION="+t.Generation, "TRIBUTARY_WORKER="+name, "OTEL_SDK_DISABLED=true")
	for _, setting := range []string{"PARTITIONS", "CELLS", "REPLICAS", "RAW", "TOOL_METADATA", "CLOUDEVENTS"} {
		environment = append(environment, "TRIBUTARY_"+setting+"=") // the generation has these
	}
	return startProcess(ctx, nil, environment, b.flags.program, "run", "--server", b.url, "--log-level", "warn")
}

// startFloor starts the process that copies records: n of them, or with 0 all that arrive until it is stopped.
func (b *bench) startFloor(ctx context.Context, n int) (*process, error) {
	return startSelf(ctx, nil, floorName, "--server", b.url, "--creds", b.flags.creds, fmt.Sprintf("--records=%d", n))
}

// environment returns the environment of a worker, without the settings of another broker.
func (b *bench) environment(more ...string) []string {
	for _, env := range new(exec.Cmd).Environ() {
		if name, _, _ := strings.Cut(env, "="); strings.HasPrefix(name, "NATS_") {
			more = append(more, name+"=")
		}
	}
	return append(more, "NATS_CREDS="+b.flags.creds)
}

// Hidden commands of this program, which run as processes.
const (
	serverName = "bench-server"
	floorName  = "bench-floor"
)

// defaultSync is the default sync interval of nats-server.
const defaultSync = 2 * time.Minute

// serverCommand runs the server of bench in its own process.
func serverCommand(started *bool) *cobra.Command {
	var cfg embedded.Config
	var sync bool
	cmd := &cobra.Command{
		Use: serverName, Short: "The server of bench", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			*started = true
			if !sync {
				cfg.SyncInterval = defaultSync
			}
			cfg.Listen = "127.0.0.1:0"
			srv, err := embedded.Start(cfg)
			if err != nil {
				return err
			}
			fmt.Println(srv.ClientURL())
			_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent process, however that ends
			srv.Shutdown()
			srv.WaitForShutdown()
			return nil
		},
	}
	cmd.Flags().StringVar(&cfg.StoreDir, "data", "", "folder of the streams")
	cmd.Flags().BoolVar(&sync, "sync", false, "sync each commit")
	return cmd
}

// floorCommand runs the floor in its own process.
func floorCommand(started *bool) *cobra.Command {
	var server, creds string
	var records int
	cmd := &cobra.Command{
		Use: floorName, Short: "The floor of bench", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			*started = true
			nc, err := connect(server, creds)
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
			if err != nil {
				return err
			}
			if records > 0 {
				return load.Carry(cmd.Context(), js, records, false)
			}
			if err = load.Carry(cmd.Context(), js, math.MaxInt, true); cmd.Context().Err() != nil {
				err = nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "server to connect to")
	cmd.Flags().StringVar(&creds, "creds", "", "file of credentials")
	cmd.Flags().IntVar(&records, "records", 0, "end after this many records")
	return cmd
}
