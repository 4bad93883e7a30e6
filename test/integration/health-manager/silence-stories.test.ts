import t from 'tap'
import { playSilences } from '../../support/worlds/silence-stories.js'

/** The long run of a property; unit/health-manager/silence.test.ts has the short one. */

t.test('a network outage is never mistaken for amphora failures, and every failure is found', async t => {
  t.doesNotThrow(() => playSilences(5000))
})
