import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'

/** Asks for the address of `who.test`, which tells the servers of knot.ts apart. */
const QUESTION = Buffer.from('000001000001000000000000' + '0377686f0474657374000001' + '0001', 'hex')
const TOLD = Buffer.from([192, 0, 2])

/** The bytes of one question and the first bytes of its answer, as a UDP-CONNECT monitor's url_path has them. */
export const MONITOR_PATH = `/${percent(question(7))}?${percent(Buffer.from([0, 7, 0x85]))}`

function percent(bytes: Buffer): string {
  return bytes.toString('hex').replaceAll(/../g, '%$&')
}

function question(id: number): Buffer {
  const bytes = Buffer.from(QUESTION)
  bytes.writeUInt16BE(id & 0xffff)
  return bytes
}

/** The number of the server that answered; null if the answer is none of theirs. */
function serverOf(answer: Buffer): number | null {
  const at = answer.lastIndexOf(TOLD)
  return at === -1 ? null : (answer[at + TOLD.length] ?? null)
}

async function connected(address: string, port: number): Promise<Socket> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4')
  socket.connect(port, address)
  await once(socket, 'connect')
  return socket
}

/** What becomes of one question on a new flow: the number of a server, or the words of a failure. */
export async function askWho(address: string, { port = 53, limitMs = 2_000 } = {}): Promise<number | string> {
  const socket = await connected(address, port)
  try {
    socket.send(question(1))
    const [answer] = (await once(socket, 'message', { signal: AbortSignal.timeout(limitMs) })) as [Buffer]
    return serverOf(answer) ?? 'another answer'
  } catch (error) {
    const { code, name } = error as NodeJS.ErrnoException
    return name === 'AbortError' ? 'no answer' : (code ?? name)
  } finally {
    socket.close()
  }
}

/** How many of so many questions on new flows each server answered, and each failure happened. */
export async function tally(address: string, count: number, options?: Parameters<typeof askWho>[1]) {
  const counts = new Map<number | string, number>()
  for (let asked = 0; asked < count; asked++) {
    const told = await askWho(address, options)
    counts.set(told, (counts.get(told) ?? 0) + 1)
  }
  return counts
}

const PACE_MS = 20

/** Asks all the time on one flow, until it is stopped. */
export async function keepAsking(address: string, port = 53) {
  const socket = await connected(address, port)
  const answered = new Set<number>()
  const servers: number[] = []
  let asked = 0
  let longestGapMs = 0
  let last = performance.now()
  let isStopped = false
  socket.on('message', answer => {
    const now = performance.now()
    longestGapMs = Math.max(longestGapMs, now - last)
    last = now
    answered.add(answer.readUInt16BE())
    const server = serverOf(answer)
    if (server !== null && servers.at(-1) !== server) servers.push(server)
  })
  // An ICMP error is a lost question.
  socket.on('error', () => undefined)
  const asking = (async () => {
    while (!isStopped) {
      asked += 1
      socket.send(question(asked), () => undefined)
      await pause(PACE_MS)
    }
    await pause(500)
    socket.close()
  })()
  return {
    stop: async () => {
      isStopped = true
      await asking
      return { asked, lost: asked - answered.size, longestGapMs: Math.round(longestGapMs), servers }
    },
  }
}
