import { createServer, type Socket } from 'node:net'
import type { Log } from '../log/log.js'
import { PING_PORT, PING_QUESTION_END, parsePingQuestion } from '../protocol/ping.js'
import { createJudge } from './judge.js'
import { PingFailure, ping } from './ping.js'
import { sharePings } from './shared-ping.js'

const MAX_QUESTION_LENGTH = 512
const QUESTION_MS = 5_000

/**
 * Answers HAProxy's agent checks for members with PING health monitors: HAProxy has no ping check of its own. If
 * the ping fails to run, there is no answer, which leaves the server's state unchanged.
 * @returns a function that stops it
 */
export async function answerPings(log: Log): Promise<() => Promise<void>> {
  const judge = createJudge()
  const askOnce = sharePings(ping)
  let lastError = ''

  const answer = async (text: string): Promise<string> => {
    const question = parsePingQuestion(text)
    if (question === null) return ''
    try {
      const answered = await askOnce(question.address, question.timeoutSeconds)
      lastError = ''
      // HAProxy accepts the reason only after a blank.
      return judge(question, answered) === 'up' ? 'up\n' : 'down #no reply to ping\n'
    } catch (error) {
      const message = error instanceof PingFailure ? error.message : String(error)
      if (message !== lastError) log.error(`cannot ping members: ${message}`)
      lastError = message
      return ''
    }
  }

  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    let text = ''
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => socket.destroy())
    socket.setTimeout(QUESTION_MS, () => socket.destroy())
    socket.setEncoding('latin1')
    const listen = (piece: string) => {
      text += piece
      const end = text.indexOf(PING_QUESTION_END)
      if (end === -1) {
        if (text.length > MAX_QUESTION_LENGTH) socket.destroy()
        return
      }
      socket.off('data', listen)
      socket.setTimeout(0)
      void answer(text.slice(0, end + 1)).then(reply => socket.end(reply))
    }
    socket.on('data', listen)
  })
  await new Promise<void>(resolve => {
    server.on('error', error => {
      log.error(`cannot answer HAProxy's ping checks: ${error.message}`)
      resolve()
    })
    server.listen(PING_PORT, '127.0.0.1', resolve)
  })
  return async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  }
}
