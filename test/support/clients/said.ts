import { createConnection } from 'node:net'
import { text } from 'node:stream/consumers'

/**
 * Sends a text. @returns all that is received until the connection ends @throws Error when nothing arrives in
 * time
 */
export async function said(
  to: { path: string } | { host: string; port: number },
  words: string,
  limitMs: number,
): Promise<string> {
  const socket = createConnection(to)
  socket.setTimeout(limitMs, () => socket.destroy(new Error('no answer')))
  socket.end(words)
  return text(socket)
}
