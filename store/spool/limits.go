package spool

import "time"

// MaxLine bounds one line, its line feed not counted. A receipt has about 900
// bytes; what is longer by far is damage.
const MaxLine = 64 << 10

const (
	// segmentSize is where a segment ends: small enough to count its lines at a
	// start, large enough that there are few of them.
	segmentSize = 64 << 20
	// maxWaiting bounds the lines that wait for the disk: more callers than an
	// edge serves at once. The next one is told so instead of waiting.
	maxWaiting = 4096
	// maxOpen bounds the open-request journal: 4 MiB on disk.
	maxOpen = 64 << 10
	// keepSent is how long a segment stays after its last line was written, if
	// all of it was sent.
	keepSent = 7 * 24 * time.Hour
	// keepIDs is how long an ID is known at least, and maxIDs how many of them
	// there are per half of the window: 48 bytes each.
	keepIDs = 24 * time.Hour
	maxIDs  = 1 << 20
	// rejections is how often a line is offered that the other side calls
	// invalid: a proxy in between may have said it.
	rejections = 5
	// firstPause and maxPause bound what is waited between two attempts, by the
	// back-off as by the other side's word. A word beyond sillyPause is not
	// taken for one.
	firstPause = time.Second
	maxPause   = 5 * time.Minute
	sillyPause = 24 * time.Hour
	// sendTimeout bounds one attempt.
	sendTimeout = 30 * time.Second
	// A checkpoint is written when so many lines, or so much time, lie behind the
	// last one. What was sent beyond it is sent again after a crash.
	saveLines = 256
	saveEvery = time.Second
	// probeEvery is how often a disk that took nothing is tried again.
	probeEvery = 5 * time.Second
	// slowDisk is what a write and its sync take at most where callers that may leave
	// write themselves.
	slowDisk = 100 * time.Millisecond
	// readChunk is what the worker reads at once.
	readChunk = 256 << 10
	// maxReason bounds the other side's words in a log, a status and a file.
	maxReason = 200
)
