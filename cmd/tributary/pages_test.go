package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "../.." // the folder of the module

// TestLinksOfPagesHaveTargets checks the relative links of all pages: the file exists, and the
// section, too.
func TestLinksOfPagesHaveTargets(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			file, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			links++
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if section != "" && !sections(readPage(t, target))[section] {
				t.Errorf("%s links to %s: no such section", page, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no links are found")
	}
}

// TestPagesNameFilesThatExist checks the paths in the pages of the whole project.
func TestPagesNameFilesThatExist(t *testing.T) {
	t.Parallel()
	text := readPage(t, readme) + readPage(t, filepath.Join(module, "CONTRIBUTING.md"))
	paths := regexp.MustCompile("`((?:cmd|deploy|envelopes|normalizers|pipeline)/[A-Za-z0-9_./-]+)`").FindAllStringSubmatch(text, -1)
	if len(paths) == 0 {
		t.Error("no paths are found")
	}
	for _, m := range paths {
		if _, err := os.Stat(filepath.Join(module, m[1])); err != nil {
			t.Error(err)
		}
	}
}

// pages lists the pages of the module.
func pages(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
			return fs.SkipDir
		}
		if filepath.Ext(d.Name()) == ".md" {
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sections returns the anchors of the headings of a page.
func sections(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors[strings.ReplaceAll(kept, " ", "-")] = true
	}
	return anchors
}

// TestCommandsOfPagesAreValid parses the command lines of the code blocks of all pages: the commands exist, and their flags.
func TestCommandsOfPagesAreValid(t *testing.T) {
	t.Parallel()
	c, wrong := loadConfig()
	if wrong != nil {
		t.Fatal(wrong)
	}
	line := regexp.MustCompile(`(?m)^ {4,}(?:\$ )?(?:[A-Z_]+=\S* |time |copilot .*\| )*tributary ((?:[^ \n#|&<>]| [^ \n#|&<>])+)`)
	commands := 0
	for _, page := range pages(t) {
		for _, m := range line.FindAllStringSubmatch(readPage(t, page), -1) {
			commands++
			root := (&app{config: c, stdout: io.Discard, stderr: io.Discard}).rootCommand(new(bool))
			cmd, rest, err := root.Find(strings.Fields(m[1]))
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
				err = fmt.Errorf("%s has no command %s", cmd.CommandPath(), cmd.Flags().Arg(0))
			}
			if err != nil {
				t.Errorf("%s: tributary %s: %v", page, m[1], err)
			}
		}
	}
	if commands < 50 {
		t.Errorf("%d commands", commands)
	}
}
