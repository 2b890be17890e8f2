package main

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/ship"
)

// agentJSON is an agent in the JSON of tributary agents.
type agentJSON struct {
	Source   envelopes.Source `json:"source"`
	Name     string           `json:"name"`
	Found    int              `json:"found"`    // logs on this machine
	Finds    []string         `json:"finds"`    // patterns of the logs and databases that ship finds
	Other    string           `json:"other"`    // what else is read
	Versions string           `json:"versions"` // of the agent whose logs were read
	Checked  string           `json:"checked"`  // the newest version that was compared
	Read     []core.Basis     `json:"read"`
	States   []core.Fact      `json:"states"`
	Lacks    []core.Fact      `json:"lacks"`
	Limits   string           `json:"limits"`
}

func agentsCommand(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "agents [flags]",
		Short: "List the agents whose logs are read, and what was verified",
		Long: `List the agents whose logs are read, how many logs of each are on this machine, what
its rules were made from (real logs, fixtures of others, the agent's code), and what its
logs state: an independent reader compares that with the events of every log there is.
What an agent's log lacks is null in its events. -o json also has where ship finds logs
(finds), and what else is read (other).`,
		Example: `  tributary agents
  tributary agents -o json | jq -r '.name + ": " + (.finds + [.other] | join(", "))'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			list, err := agents(a)
			if err != nil {
				return err
			}
			if output == "table" {
				return agentTable(list).Write(a.stdout, terminal.TableWidth(a.stdout))
			}
			for _, v := range list {
				if err := terminal.WriteJSON(a.stdout, v); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// agents returns the rows of the table of vendors, with what is on this machine.
func agents(a *app) ([]agentJSON, error) {
	roots, err := a.config.roots()
	if err != nil {
		return nil, err
	}
	found := ship.Found(roots)
	var list []agentJSON
	for _, v := range normalizers.Vendors() {
		e := &v.Evidence
		list = append(list, agentJSON{
			Source: v.Source, Name: v.Name, Found: found[v.Source], Finds: logPatterns(v), Other: v.Reads,
			Versions: e.Versions, Checked: v.Checked,
			Read: e.Read, States: e.States(), Lacks: append([]core.Fact{}, e.Lacks...), Limits: e.Limits,
		})
	}
	return list, nil
}

// logPatterns returns the patterns of the logs and databases of an agent that ship finds.
func logPatterns(v *core.Vendor) []string {
	list := []string{}
	for _, f := range v.Logs.Folders {
		list = append(list, logPattern(v.Logs.Home, f))
	}
	if v.Database != nil {
		for _, folder := range v.Database.Folders {
			for _, name := range v.Database.Names {
				list = append(list, path.Join("~", folder, "*"+name))
			}
		}
	}
	return list
}

// logPattern returns the pattern of the logs in a folder.
func logPattern(home string, f core.LogFolder) string {
	suffixes := slices.Clone(f.Suffixes)
	for _, suffix := range f.Suffixes {
		for _, archived := range f.Archived {
			suffixes = append(suffixes, suffix+archived+"*")
		}
	}
	suffix := strings.Join(suffixes, ",")
	if len(suffixes) > 1 {
		suffix = "{" + suffix + "}"
	}
	within := "**"
	if f.Within != "" {
		within += "/" + f.Within + "/**"
	}
	if f.Prefix != "" {
		within += "/" + f.Prefix + "*"
	}
	return "~/" + path.Join(home, f.Dirs()[0], within) + suffix
}

// agentTable returns the table for people.
func agentTable(list []agentJSON) *terminal.Table {
	t := terminal.NewTable("AGENT", "SOURCE", "LOGS HERE", "VERSIONS", "MADE FROM", "LACKS", "NOT READ")
	t.Columns[2].Right = true
	t.Columns[6].Wrap = true
	for _, v := range list {
		t.Add(v.Name, string(v.Source), strconv.Itoa(v.Found), v.Versions, words(v.Read), words(v.Lacks), strings.ReplaceAll(v.Limits, "`", ""))
	}
	return t
}

// words joins values with commas.
func words[T ~string](values []T) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return strings.Join(list, ", ")
}
