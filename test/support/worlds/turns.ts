import { once } from 'node:events'
import { createServer } from 'node:net'
import type { Test } from 'tap'
import { eventually } from '../eventually.js'

/** As long as the longest of these tests may take. */
const LIMIT_MS = 900_000

/**
 * Waits until no other test may turn on forwarding, a switch of the whole host, and keeps the others waiting until the
 * test's end. Call it before the Krater of the test is created.
 */
export const takeForwardingTurn = (t: Test): Promise<void> => takeTurn(t, 'forwarding')

/**
 * The same for a chassis of OVN on the host itself: its bridge has the same name in all of them. Without the bridge, a
 * second chassis installs nothing.
 */
export const takeChassisTurn = (t: Test): Promise<void> => takeTurn(t, 'chassis')

async function takeTurn(t: Test, name: string): Promise<void> {
  const taken = createServer()
  await eventually(
    'the turn of this test',
    async () => {
      // A name of this network namespace, which goes with the process.
      taken.listen(`\0krater-test-${name}`)
      return once(taken, 'listening').then(
        () => true,
        () => false,
      )
    },
    LIMIT_MS,
  )
  t.teardown(() => taken.close())
}
