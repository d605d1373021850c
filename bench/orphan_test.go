package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hold starts all targets, says where they are, and does nothing more.
func hold() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	targets, _, err := startTargets(context.Background(), self, self)
	if err != nil {
		return err
	}
	for _, t := range targets {
		fmt.Println(t.base)
	}
	select {}
}

// TestNoTargetOutlivesTheRun kills a run: what it started goes with it. That a
// process is gone shows in its connections.
func TestNoTargetOutlivesTheRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a process to its parent")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir()) // a run that is killed leaves its files
	run := exec.Command(self, "hold")
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer run.Wait()
	defer run.Process.Kill()
	var conns []net.Conn
	in := bufio.NewScanner(out)
	for len(conns) < 6 && in.Scan() {
		conn, err := net.Dial("tcp", strings.TrimPrefix(in.Text(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	if len(conns) != 6 {
		t.Fatalf("%d targets were started, want 6", len(conns))
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s is still there: %v", conn.RemoteAddr(), err)
		}
	}
}

func TestARunEndsWithItsParent(t *testing.T) {
	look := make(chan time.Time, 3)
	for range 3 {
		look <- time.Now()
	}
	parents := []int{7, 7, 7, 1}
	parent := func() int { p := parents[0]; parents = parents[1:]; return p }
	if !orphaned(t.Context(), parent, look) || len(parents) != 0 {
		t.Errorf("not seen, %v left", parents)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if orphaned(ctx, os.Getppid, nil) {
		t.Error("a run that was ended is no orphan")
	}
}
