package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// speedsKey is the one record of [Config.Speeds]: counts, times and names of options.
const speedsKey = "counts"

// maxSpeeds bounds that record, in bytes; what is more is not kept.
const maxSpeeds = 2 << 20

// loadSpeeds takes over how fast jobs were before the restart, as far as the window
// reaches. What cannot be read is measured again.
func (d *Daemon) loadSpeeds() {
	if d.cfg.Speeds == nil {
		return
	}
	var record []byte
	err := d.cfg.Speeds.Each(func(key string, value func(any) error) error {
		if key != speedsKey {
			return nil
		}
		return value(&record)
	})
	var counts []wave.Count
	if err == nil && record != nil {
		err = json.Unmarshal(record, &counts)
	}
	if err != nil {
		d.cfg.Log.Warn("how fast jobs of the pipeline were before cannot be read, and is measured again", "error", err)
		return
	}
	d.pool.Restore(counts, d.cfg.Pipeline.Waves.Window)
}

// keepSpeeds writes them down if they changed since the last time. One goroutine at a
// time calls it.
func (d *Daemon) keepSpeeds() error {
	if d.cfg.Speeds == nil || d.pipeline == nil {
		return nil
	}
	record, err := json.Marshal(d.pool.Counts(d.cfg.Pipeline.Waves.Window))
	switch {
	case err == nil && (len(record) > maxSpeeds || bytes.Equal(record, d.speeds)):
		return nil
	case err == nil:
		err = d.cfg.Speeds.PutAll(map[string]any{speedsKey: record})
	}
	if err != nil {
		return fmt.Errorf("keep how fast jobs of the pipeline were: %w", err)
	}
	d.speeds = record
	return nil
}
