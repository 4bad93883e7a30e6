import t from 'tap'
import { playSilences } from '../../support/worlds/silence-stories.js'

/** The long run of a property of which unit/health-manager/silence.test.ts has a short one. */

t.test('a cut network is never taken for deaths, and every death is found', async t => {
  t.doesNotThrow(() => playSilences(5000))
})
