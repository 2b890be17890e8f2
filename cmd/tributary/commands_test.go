package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// commands is a process that runs commands of tributary, one after the other: most of the time of a short command is
// the start of its process.
type commands struct {
	t    testing.TB
	env  []string
	to   *jsontext.Encoder
	from *jsontext.Decoder
}

// commandRequest is a command with its environment.
type commandRequest struct{ Env, Args []string }

// commandAnswer is the end of a command.
type commandAnswer struct {
	Code           int
	Stdout, Stderr string
}

// startCommands starts a process whose commands have the environment of [start].
func startCommands(tb testing.TB, home, url string) *commands {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	c := &commands{t: tb, env: environment(home, url)}
	cmd := exec.Command(self) //nolint:noctx // the end of its input ends it
	cmd.Args = []string{"commands"}
	cmd.Env = c.env
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c.to, c.from = jsontext.NewEncoder(stdin), jsontext.NewDecoder(stdout)
	tb.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the process of commands: %v", err)
		}
	})
	return c
}

// run runs a command to its end, with settings beside those of the process.
func (c *commands) run(settings []string, args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	env := slices.Concat(c.env, settings)
	if err := json.MarshalEncode(c.to, commandRequest{env, args}); err != nil {
		c.t.Fatalf("%v: %v", args, err)
	}
	var end commandAnswer
	if err := json.UnmarshalDecode(c.from, &end); err != nil {
		c.t.Fatalf("%v: %v", args, err)
	}
	return end.Code, end.Stdout, end.Stderr
}

// runCommands is the program of the process.
func runCommands() {
	in, out := jsontext.NewDecoder(os.Stdin), jsontext.NewEncoder(os.Stdout)
	for {
		var r commandRequest
		if err := json.UnmarshalDecode(in, &r); err == io.EOF { //nolint:errorlint // it is not wrapped
			return
		} else if err != nil {
			panic(err)
		}
		if err := json.MarshalEncode(out, r.run()); err != nil {
			panic(err)
		}
	}
}

func (r *commandRequest) run() (end commandAnswer) {
	os.Clearenv()
	for _, setting := range r.Env {
		name, value, _ := strings.Cut(setting, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	stdin, stdout, stderr := os.Stdin, os.Stdout, os.Stderr
	defer func() { os.Stdin, os.Stdout, os.Stderr = stdin, stdout, stderr }()
	var err error
	if os.Stdin, err = os.Open(os.DevNull); err != nil {
		panic(err)
	}
	defer os.Stdin.Close()
	readOut, readErr := capture(&os.Stdout), capture(&os.Stderr)
	end.Code = run(r.Args)
	end.Stdout, end.Stderr = readOut(), readErr()
	return end
}

// capture replaces a file of the process by one whose content the returned function reads.
func capture(file **os.File) (read func() string) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	*file = w
	content := make(chan string)
	go func() {
		b, err := io.ReadAll(r)
		if err != nil {
			panic(err)
		}
		content <- string(b)
	}()
	return func() string {
		w.Close()
		defer r.Close()
		return <-content
	}
}
