import t from 'tap'
import { AMPHORAE_DIE, playStories, WORKERS_DIE } from '../../support/worlds/failover-stories.js'

/** The long runs of two properties of which unit/provider/plan-failover.test.ts has short ones. */
const STORIES = Number(process.env.KRATER_TEST_RUNS ?? 400)

t.test('when workers die: an amphora always serves, a role has one successor, and the end is the same', async t => {
  t.doesNotThrow(() => playStories(WORKERS_DIE, STORIES))
})

t.test('when amphorae die or hang as well, the end is the same', async t => {
  t.doesNotThrow(() => playStories(AMPHORAE_DIE, STORIES))
})
