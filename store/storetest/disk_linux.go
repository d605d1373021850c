package storetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// OnSmallDisk runs a verb in a child with a private view of the file systems;
// its argument is a directory, for [MountSmall]. It skips where mounting is
// not allowed.
func OnSmallDisk(t *testing.T, verb string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	cmd := Child(t, verb, t.TempDir())
	var said strings.Builder
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		if errors.Is(err, syscall.EPERM) || strings.Contains(said.String(), "mount: operation not permitted") {
			t.Skip("mounting is not allowed here")
		}
		t.Fatalf("%v: %s", err, said.String())
	}
}

// MountSmall mounts a file system of 1 MiB in memory on dir. It is for verbs of
// [OnSmallDisk].
func MountSmall(dir string) error {
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// Fill makes a file at path that takes all the room there is.
func Fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// MakeReadOnly makes the directory of path read-only, which the kernel refuses to do to
// a file system with files open for writing. A bind mount can be made read-only all
// the same, but leaves open files writable. [MakeWritable] takes it back.
func MakeReadOnly(path string) error {
	dir := filepath.Dir(path)
	return errors.Join(syscall.Mount(dir, dir, "", syscall.MS_BIND, ""), remount(path, syscall.MS_BIND|syscall.MS_RDONLY))
}

// MakeWritable undoes [MakeReadOnly].
func MakeWritable(path string) error { return remount(path, syscall.MS_BIND) }

func remount(path string, flags uintptr) error {
	return syscall.Mount("", filepath.Dir(path), "", syscall.MS_REMOUNT|flags, "")
}
