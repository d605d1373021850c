package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Read gives every kept line of the spool in dir to each, the oldest first, until
// that returns an error. It takes no lock and changes nothing: another process may
// have the spool. An unfinished last line is left out, and so is one over MaxLine. The bytes
// are valid until each returns. A directory without a spool has no lines.
func Read(dir string, each func(line []byte) error) error {
	names, err := filepath.Glob(filepath.Join(dir, "spool-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"))
	if err != nil {
		return fmt.Errorf("read the spool: %w", err)
	}
	for _, name := range append(names, filepath.Join(dir, currentName)) { // Glob sorts
		if err := readLines(name, each); err != nil {
			return err
		}
	}
	return nil
}

func readLines(name string, each func(line []byte) error) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // or it was just closed: its lines come with the next reading
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the spool: %w", err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, MaxLine+1)
	for {
		line, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) { // too long for a line: to its end
			line = nil
			_, err = in.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the spool: %w", err)
		case len(line) == 0:
			continue
		}
		if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return err
		}
	}
}
