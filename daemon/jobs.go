package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/control"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// lastCopies is how long the daemon waits at its end for copies of jobs that do not
// heed that they are given up.
const lastCopies = 2 * time.Second

// openPipeline makes the table of jobs, and the pipeline where its owner wants one.
func (d *Daemon) openPipeline() error {
	d.jobs, d.pool = jobs.NewTable(d.cfg.Jobs), wave.NewPool()
	d.board = jobs.NewBoard(d.jobs, d.cfg.Provided)
	if err := d.board.Load(); err != nil {
		d.cfg.Log.Warn("providers of the last run have to register again", "error", err)
	}
	if !d.cfg.Pipeline.Enabled {
		return nil
	}
	var err error
	if d.pipeline, err = pipeline.New(d.cfg.Pipeline); err != nil {
		return err
	}
	d.loadSpeeds()
	return nil
}

// Jobs gives the jobs of this device.
func (d *Daemon) Jobs() *jobs.Table { return d.jobs }

// startJobs reads what the last run kept, and begins to keep. What had not ended is
// failed: its receipts say so.
func (d *Daemon) startJobs(ctx context.Context) {
	failed, err := d.jobs.Load()
	if err != nil {
		d.cfg.Log.Warn("the jobs of the last run are not known", "error", err)
	}
	d.receipts.catchUp(failed)
	if len(failed) > 0 {
		d.cfg.Log.Warn("jobs had not ended when the last run did: they are failed", "jobs", len(failed), "reason", jobs.Restart)
	}
	ctx, d.stopJobs = context.WithCancel(context.WithoutCancel(ctx))
	d.group.Go(func() { d.jobs.Run(ctx) })
}

// closeJobs waits for what still runs, and has the rest kept.
func (d *Daemon) closeJobs() {
	if d.stopJobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastCopies)
	defer cancel()
	if err := d.pool.Close(ctx); err != nil {
		d.cfg.Log.Warn("some jobs still run that were given up", "error", err)
	}
	d.stopJobs()
}

// catchUp makes the receipts of the jobs that a restart ended, and then says how many
// requests stay without one: of those the journal knows nothing but that they were open.
func (r *receipts) catchUp(failed []jobs.Record) {
	if r.spool == nil {
		return
	}
	var late []*account
	for i := range failed {
		if a := r.interrupted(&failed[i]); a != nil {
			late = append(late, a)
		}
	}
	r.pending.Add(int64(len(late)))
	r.group.Go(func() {
		for some := range slices.Chunk(late, maxTogether) {
			r.keep(some)
		}
		if n := r.spool.Status().Lost; n > 0 {
			r.d.cfg.Log.Error("requests were open when the last run ended, and have no receipt", "requests", n)
		}
	})
}

// interrupted begins the account of a job that a restart ended, and ends it as well;
// nil where too little is known for a receipt.
func (r *receipts) interrupted(j *jobs.Record) *account {
	if j.Transaction == "" || receipt.ParseHash(j.RequestHash) != nil {
		return nil
	}
	role := receipt.RoleRoot
	if j.Root != j.ID {
		role = receipt.RoleJob(j.ID)
	}
	a := &account{of: r, answer: receipt.NewResponse(j.Primitive, false), hash: j.RequestHash}
	a.hashing.Do(func() {})
	a.receipt = receipt.Receipt{TransactionID: j.Transaction, MessageID: receipt.MessageID(j.Transaction, role), SeekerDID: r.d.did, Capability: string(j.Primitive), RequestAt: j.Created,
		Status: receipt.UpstreamError, ResponseAt: time.Now()}
	a.begin()
	return a
}

// pipelineStatus says what became of hard questions.
func (d *Daemon) pipelineStatus() control.Pipeline {
	n, waves := d.jobs.Counts(), d.pool.Totals()
	p := control.Pipeline{Enabled: d.pipeline != nil, Pending: n.Pending, Running: n.Running, Done: n.Done, Failed: n.Failed, Superseded: n.Superseded,
		Cancelled: n.Cancelled, Refused: n.Refused,
		Hedges: waves.Hedges, HedgesWon: waves.Won, HedgesPoor: waves.Poor, HedgesNowhere: waves.Nowhere, Stuck: waves.Stuck}
	if d.pipeline != nil {
		p.Unscored = d.pipeline.Unscored()
	}
	return p
}
