package daemon

import (
	"context"
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
	d.pipeline, err = pipeline.New(d.cfg.Pipeline)
	return err
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
	for i := range failed {
		d.receipts.interrupted(&failed[i])
	}
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

// interrupted makes the receipt of a job that a restart ended.
func (r *receipts) interrupted(j *jobs.Record) {
	if r.spool == nil || j.Transaction == "" || receipt.ParseHash(j.RequestHash) != nil {
		return // the journal has counted it
	}
	role := receipt.RoleRoot
	if j.Root != j.ID {
		role = receipt.RoleJob(j.ID)
	}
	a := &account{of: r, answer: receipt.NewResponse(j.Primitive, false), hash: j.RequestHash}
	a.hashing.Do(func() {})
	a.receipt = receipt.Receipt{TransactionID: j.Transaction, MessageID: receipt.MessageID(j.Transaction, role), SeekerDID: r.d.did, Capability: string(j.Primitive), RequestAt: j.Created}
	a.close(receipt.UpstreamError)
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
