package storetest

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PowerCuts runs a verb in a child with a private view of the file systems,
// which has to call [CutPower] with its arguments. It skips where mounting is
// not allowed.
func PowerCuts(t *testing.T, rounds int, seed uint64, verb string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	for _, program := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	random := Random(t, seed)
	cmd := Child(t, verb, t.TempDir(), strconv.Itoa(rounds), strconv.FormatUint(random.Uint64(), 10))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err := cmd.Run()
	if errors.Is(err, syscall.EPERM) || strings.Contains(said.String(), "cannot mount") {
		t.Skip("mounting is not allowed here")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	t.Log(strings.TrimSpace(said.String()))
}

// CutPower cuts the power under a writer, again and again: DIR ROUNDS SEED. The file
// system lies in an image, and the image is copied while the writer works in
// it: what the system had not written by then, it had only in memory. The writer is
// a verb whose argument is a directory; hear gets the lines it prints, and kept
// checks, on what the power cut left of that directory, what was promised by then.
func CutPower(args []string, writer string, hear func(line string) error, kept func(dir string) error) error {
	dir := args[0]
	rounds, err1 := strconv.Atoi(args[1])
	seed, err2 := strconv.ParseUint(args[2], 10, 64)
	if err := errors.Join(err1, err2, syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, "")); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	err := errors.Join(os.Mkdir(mount, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20), run("mkfs.ext4", "-q", "-F", "-m", "0", image))
	if err != nil {
		return err
	}
	for range rounds {
		if err := run("mount", "-o", "loop", image, mount); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
		err := cut(image, mount, time.Duration(random.Int64N(int64(300*time.Millisecond))), writer, hear)
		if err = errors.Join(err, run("umount", mount), os.Rename(image+".cut", image)); err != nil {
			return err
		}
		if err := run("mount", "-o", "loop", image, mount); err != nil {
			return err
		}
		if err := errors.Join(kept(filepath.Join(mount, "data")), run("umount", mount)); err != nil {
			return err
		}
	}
	return nil
}

// cut lets a writer work for a while, copies the image while it stands still,
// and ends it.
func cut(image, mount string, after time.Duration, writer string, hear func(line string) error) error {
	cmd := exec.Command(program(), verbFlag+writer, filepath.Join(mount, "data"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	copied := make(chan error, 1)
	time.AfterFunc(after, func() {
		err := cmd.Process.Signal(syscall.SIGSTOP)
		copied <- errors.Join(err, snapshot(image, image+".cut"), cmd.Process.Kill())
	})
	for scan := bufio.NewScanner(out); scan.Scan(); {
		if err := hear(scan.Text()); err != nil {
			return err
		}
	}
	_ = cmd.Wait() // it was killed
	return <-copied
}

// snapshot copies the image as it was at one moment. The system goes on writing to it
// for a while when the writer stands still, and a copy that is half older and half
// newer is nothing that a power cut leaves: so it is copied until two copies are equal.
func snapshot(image, to string) error {
	var before [sha256.Size]byte
	for range 50 {
		b, err := os.ReadFile(image)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		if sum == before {
			return os.WriteFile(to, b, 0o600)
		}
		before = sum
	}
	return errors.New("the image does not come to rest")
}

func run(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}
