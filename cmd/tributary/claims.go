package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/claims"
)

func claimsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List and remove the objects of large records",
		Long: `A record that is too large for a message is an object in the bucket CLAIMS, named by the
SHA-256 of its bytes, and its message in the raw stream names the object. An object that
no record names is an orphan: its producer died before it published the record, or the
record has left the raw stream.`,
		Example: `  tributary claims ls                      all objects, and how many records name each
  tributary claims gc --dry-run            show the orphans
  tributary claims gc                      remove them`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(claimsListCommand(a), claimsCollectCommand(a))
	return cmd
}

// objectJSON is the JSON form of an object.
type objectJSON struct {
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	Stored  time.Time `json:"stored"`
	Records int       `json:"records"`
}

// printObjectTable writes objects as a table.
func printObjectTable(a *app, objects []claims.Object) error {
	table := terminal.NewTable("OBJECT", "SIZE", "STORED", "RECORDS")
	for _, o := range objects {
		name := terminal.OneLine(o.Name)
		if name == "" {
			name = "(incomplete upload)"
		}
		table.Add(name, terminal.Size(o.Size), terminal.DateTime(o.Stored), strconv.Itoa(o.Records))
	}
	return table.Write(a.stdout, terminal.Uncut)
}
