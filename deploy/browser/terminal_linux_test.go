package browser

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// openTerminal opens a terminal: near reads the output of a process that writes to far.
func openTerminal() (near, far *os.File, err error) {
	near, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	control := func(request uintptr, value *int32) error {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, near.Fd(), request, uintptr(unsafe.Pointer(value))); e != 0 {
			return e
		}
		return nil
	}
	var unlocked, number int32
	if err := control(syscall.TIOCSPTLCK, &unlocked); err != nil {
		return nil, nil, fmt.Errorf("unlock a terminal: %w", err)
	}
	if err := control(syscall.TIOCGPTN, &number); err != nil {
		return nil, nil, fmt.Errorf("number of a terminal: %w", err)
	}
	far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	return near, far, err
}
