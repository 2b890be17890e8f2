//go:build !linux

package browser

import "os"

func openTerminal() (near, far *os.File, err error) { return nil, nil, errNoTerminal }
