import t from 'tap'
import { AMPHORAE_DIE, playStories, WORKERS_DIE } from '../../support/worlds/failover-stories.js'

/** Long runs of two properties; unit/provider/plan-failover.test.ts has the short ones. */
const STORIES = Number(process.env.KRATER_TEST_RUNS ?? 400)

t.test('workers die: an amphora always serves, each role has one successor, and the result is the same', async t => {
  t.doesNotThrow(() => playStories(WORKERS_DIE, STORIES))
})

t.test('workers and amphorae die or hang: the result is the same', async t => {
  t.doesNotThrow(() => playStories(AMPHORAE_DIE, STORIES))
})
