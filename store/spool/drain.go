package spool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// worker hands lines on, one after the other.
type worker struct {
	s       *Spool
	to      Sender
	at      position
	number  int // the segment that reader has open
	reader  lineReader
	unsaved int       // lines beyond the checkpoint on disk
	since   time.Time // when the first of them was done
	unsaid  bool      // it was said that the checkpoint cannot be written
	alerts  *time.Ticker
	alerted time.Time
	dropped time.Time // when sent segments were looked for last
}

// Drain hands the lines to a sender in their order, one at a time, until ctx
// ends, and returns nil then. There is one worker at a time: ErrDraining. Before it
// returns it has written the checkpoint.
func (s *Spool) Drain(ctx context.Context, to Sender) error {
	if !s.drains.CompareAndSwap(false, true) {
		return ErrDraining
	}
	defer s.drains.Store(false)
	s.mu.Lock()
	w := &worker{s: s, to: to, at: s.mark}
	s.mu.Unlock()
	w.alerts = time.NewTicker(s.cfg.AlertEvery)
	defer w.alerts.Stop()
	defer w.closeReader()
	defer w.save()
	for ctx.Err() == nil {
		line, size, err := w.next(ctx)
		switch {
		case err == nil:
			w.deliver(ctx, line, size)
		case errors.Is(err, errNoLine):
			w.idle(ctx)
		default:
			w.trouble(ctx, "cannot read the spool", err)
		}
	}
	return nil
}

// next gives the line in hand, and the bytes it takes. At the end of a full
// segment it goes on to the next one.
func (w *worker) next(ctx context.Context) (line []byte, size int64, err error) {
	for ctx.Err() == nil {
		end, following := w.s.extent(w.at.segment)
		line, size, err := w.read(end)
		if !errors.Is(err, errNoLine) || following == 0 {
			return line, size, err
		}
		if err := w.move(following); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, errNoLine
}

func (w *worker) read(end int64) ([]byte, int64, error) {
	if w.at.offset >= end {
		return nil, 0, errNoLine
	}
	if w.reader.file == nil || w.number != w.at.segment {
		w.closeReader()
		f, err := w.s.reading(w.at.segment)
		if err != nil {
			return nil, 0, err
		}
		w.number, w.reader.file = w.at.segment, f
	}
	return w.reader.line(w.at.offset, end)
}

func (w *worker) closeReader() {
	if w.reader.file != nil {
		_ = w.reader.file.Close()
	}
	w.reader = lineReader{buf: w.reader.buf[:0]}
}

// extent gives how many bytes of a segment count, and, if it is full, the
// number of the one behind it.
func (s *Spool) extent(number int) (end int64, following int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, seg := range s.segments {
		if seg.number != number {
			continue
		}
		if i+1 < len(s.segments) {
			following = s.segments[i+1].number
		}
		return seg.size, following
	}
	return 0, 0
}

// move begins the next segment; the one behind is done.
func (w *worker) move(to int) error {
	p := position{segment: to}
	w.s.mu.Lock()
	err := w.s.noteFirst(&p)
	if err == nil {
		w.at, w.s.mark = p, p
	}
	w.s.mu.Unlock()
	if err != nil {
		return err
	}
	w.count()
	w.save()
	w.s.dropSent(time.Now())
	return nil
}

// deliver offers the line in hand until it was taken or has to be set aside.
func (w *worker) deliver(ctx context.Context, line []byte, size int64) {
	if damage := w.take(line); damage != "" {
		for ctx.Err() == nil && !w.aside(ctx, line, size, damage) { // until the disk takes it
		}
		return
	}
	no := 0
	for attempt := 0; ctx.Err() == nil; attempt++ {
		limited, cancel := context.WithTimeout(ctx, sendTimeout)
		out := w.to.Send(limited, line)
		cancel()
		out.Reason = clip(out.Reason)
		switch out.Verdict {
		case Accepted:
			w.advance(line, size)
			return
		case Rejected:
			no++
		case Conflict:
			no = rejections
		}
		if ctx.Err() != nil && no < rejections {
			return // the attempt may have failed for that alone
		}
		w.s.setReason(out.Reason, "no reason was given")
		if no >= rejections && w.aside(ctx, line, size, out.Reason) {
			return
		}
		w.alert(time.Now())
		w.pause(ctx, backOff(attempt, out.After))
	}
}

// take notes the age of the line in hand, and says what is wrong with one
// that cannot have been appended so.
func (w *worker) take(line []byte) (damage string) {
	var label Label
	switch {
	case len(line) > MaxLine:
		damage = fmt.Sprintf("damaged: longer than %d bytes", MaxLine)
	case len(line) == 0 || line[0] != '{' || !json.Valid(line):
		damage = "damaged: no JSON object"
	default:
		var err error
		if label, err = w.s.cfg.Label(line); err != nil {
			damage = "damaged: " + clip(err.Error())
		}
	}
	w.s.mu.Lock()
	w.s.status.Oldest = label.At
	w.s.mu.Unlock()
	w.alert(time.Now())
	return damage
}

// advance puts the line in hand behind the worker.
func (w *worker) advance(line []byte, size int64) {
	w.at.lines++
	w.at.offset += size
	w.at.last = hashOf(line)
	w.s.mu.Lock()
	w.at.first = w.s.mark.first // which the writer fills in
	w.s.mark = w.at
	w.s.status.Sent++
	w.s.status.Reason = ""
	w.s.mu.Unlock()
	w.count()
	if w.unsaved >= saveLines || time.Since(w.since) >= saveEvery {
		w.save()
	}
}

func (w *worker) count() {
	if w.unsaved == 0 {
		w.since = time.Now()
	}
	w.unsaved++
}

// rejected is a line of spool.rejected.jsonl.
type rejected struct {
	At     time.Time `json:"at"`
	Spool  string    `json:"spool"`
	Line   int64     `json:"line"` // from 1
	Offset int64     `json:"offset"`
	Reason string    `json:"reason"`
	Size   int64     `json:"size"` // with the line feed
	SHA256 string    `json:"sha256"`
	Text   string    `json:"text,omitempty"`
	Base64 string    `json:"base64,omitempty"` // of what is no UTF-8
}

// aside keeps the line in hand apart, so that the next can go out. It
// reports false if that could not be made durable: the line stays in hand.
func (w *worker) aside(ctx context.Context, line []byte, size int64, reason string) bool {
	r := rejected{
		At: time.Now().UTC().Truncate(time.Millisecond), Spool: segmentID(w.at.segment, w.at.first), Line: w.at.lines + 1,
		Offset: w.at.offset, Reason: reason, Size: size, SHA256: hashOf(line),
	}
	if utf8.Valid(line) {
		r.Text = string(line)
	} else {
		r.Base64 = base64.StdEncoding.EncodeToString(line)
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = extend(w.s.disk, rejectedName, append(b, '\n'))
	}
	if err != nil {
		w.trouble(ctx, "cannot set a line of the spool aside", err)
		return false
	}
	w.s.cfg.Log.Error("a line of the spool was not taken and is set aside in "+rejectedName, "reason", reason, "line", r.Line, "offset", r.Offset, "spool", r.Spool)
	w.advance(line, size)
	w.s.mu.Lock()
	w.s.status.Sent--
	w.s.status.Rejected++
	w.s.mu.Unlock()
	return true
}

// save writes the checkpoint, if there is something new to say. Where that
// fails, lines go out all the same: they would only be sent twice.
func (w *worker) save() {
	if w.unsaved == 0 {
		return
	}
	closed := make(map[int]int64)
	w.s.mu.Lock()
	for _, seg := range w.s.segments[:len(w.s.segments)-1] {
		if seg.number >= w.at.segment {
			closed[seg.number] = seg.lines
		}
	}
	w.at.first = w.s.mark.first
	w.s.mu.Unlock()
	if err := replace(w.s.disk, checkpointName, w.at.encode(closed)); err != nil {
		if !w.unsaid {
			w.s.cfg.Log.Warn("cannot write the spool's checkpoint: what is sent now would be sent again after a restart", "error", err)
		}
		w.unsaid, w.unsaved, w.since = true, 1, time.Now()
		return
	}
	w.unsaid, w.unsaved = false, 0
	w.s.mu.Lock()
	w.s.saved = w.at.segment
	w.s.mu.Unlock()
}

// idle waits for a line, and meanwhile writes the checkpoint.
func (w *worker) idle(ctx context.Context) {
	var due <-chan time.Time
	if w.unsaved > 0 {
		timer := time.NewTimer(max(0, saveEvery-time.Since(w.since)))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-w.s.more:
	case <-due:
		w.save()
	case now := <-w.alerts.C:
		if now.Sub(w.dropped) >= time.Hour {
			w.dropped = now
			w.s.dropSent(now)
		}
	case <-ctx.Done():
	}
}

// trouble says that the own disk failed the worker, and waits.
func (w *worker) trouble(ctx context.Context, what string, err error) {
	w.s.setReason(clip(err.Error()), what)
	w.s.cfg.Log.Error(what, "error", err, "segment", w.at.segment, "offset", w.at.offset)
	w.closeReader()
	w.pause(ctx, maxPause/10)
}

// pause waits, warns meanwhile when it is time to, and writes the checkpoint
// at its beginning.
func (w *worker) pause(ctx context.Context, d time.Duration) {
	w.save()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case now := <-w.alerts.C:
			w.alert(now)
		case <-ctx.Done():
			return
		}
	}
}

// alert warns, once per interval, when too much waits or waits too long.
func (w *worker) alert(now time.Time) {
	if now.Sub(w.alerted) < w.s.cfg.AlertEvery {
		return
	}
	st := w.s.Status()
	var age time.Duration
	if !st.Oldest.IsZero() {
		age = now.Sub(st.Oldest)
	}
	if st.Depth <= w.s.cfg.Alert && age <= w.s.cfg.AlertAge {
		return
	}
	w.alerted = now
	w.s.cfg.Log.Warn("lines wait in the spool", "depth", st.Depth, "age", age.Truncate(time.Second).String(), "reason", st.Reason)
}

func (s *Spool) setReason(reason, otherwise string) {
	if reason == "" {
		reason = otherwise
	}
	s.mu.Lock()
	s.status.Reason = reason
	s.mu.Unlock()
}
