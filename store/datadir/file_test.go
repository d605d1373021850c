package datadir

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFile(t *testing.T) {
	f := File(filepath.Join(t.TempDir(), "last-good"))
	if b, err := f.Load(10); b != nil || err != nil || f.Delete() != nil {
		t.Fatal("a file that is not there:", b, err)
	}
	for _, want := range []string{"one", "two"} {
		if err := f.Save([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if b, err := f.Load(10); string(b) != want || err != nil {
			t.Error(string(b), err)
		}
	}
	if b, err := f.Load(2); err == nil {
		t.Error("longer than wanted:", b)
	}
	if err := f.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(string(f)); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := File(filepath.Join(string(f), "below")).Save(nil); err == nil {
		t.Error("a directory that is not there")
	}
}
