package core

import (
	"tributary/normalizers/lenient"
)

// FileInput are the members of the input of a tool that name a file, or describe a command.
type FileInput struct {
	FilePath     lenient.Text     `json:"file_path"`
	NotebookPath lenient.Text     `json:"notebook_path"`
	Path         lenient.Text     `json:"path"`
	Command      lenient.Text     `json:"command"`
	Description  lenient.NullText `json:"description"`
}

// File returns the file that the input names; empty when it names none.
func (i *FileInput) File() string {
	for _, p := range []lenient.Text{i.FilePath, i.NotebookPath, i.Path} {
		if p != "" {
			return string(p)
		}
	}
	return ""
}
