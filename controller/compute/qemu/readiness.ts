import { connect } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'

const SSH_PORT = 22
/** Each attempt takes one of the connections that sshd admits before authentication. */
const PAUSE_MS = 500
const ATTEMPT_LIMIT_MS = 2_000

/**
 * Waits until a machine's sshd presents itself: it has taken over its seed, and its management interface works.
 * @param hasEnded whether there is nothing to wait for any more
 * @returns false after `limitMs`, or once it has ended
 */
export async function sshdAnswers(address: string, limitMs: number, hasEnded: () => boolean): Promise<boolean> {
  for (const until = performance.now() + limitMs; performance.now() < until && !hasEnded(); await wait(PAUSE_MS)) {
    if (await presentsItself(address)) return true
  }
  return false
}

function presentsItself(host: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect({ host, port: SSH_PORT })
    const end = (answers: boolean) => {
      socket.destroy()
      resolve(answers)
    }
    socket.setTimeout(ATTEMPT_LIMIT_MS, () => end(false))
    socket.once('data', piece => end(piece.toString('latin1').startsWith('SSH-2.0-')))
    socket.once('error', () => end(false))
    socket.once('close', () => end(false))
  })
}
