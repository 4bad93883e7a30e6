import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import ipaddr from 'ipaddr.js'

export type Question = { name: string; type: 'A' | 'AAAA' | 'TXT' | 'other' }

/** Records as text; a status instead of an answer; or silence. */
export type Answer = readonly string[] | 'NXDOMAIN' | 'SERVFAIL' | 'silence'

export type NameServer = {
  /** `address:port`. */
  address: string
  /** Every question so far. */
  questions: Question[]
  stop: () => Promise<void>
}

const TYPES: Readonly<Record<number, Question['type']>> = { 1: 'A', 28: 'AAAA', 16: 'TXT' }
const CODES = { NXDOMAIN: 3, SERVFAIL: 2 } as const

/** A DNS server that lies as a test tells it to. */
export async function startNameServer(answerTo: (question: Question) => Answer): Promise<NameServer> {
  const socket = createSocket('udp4')
  const questions: Question[] = []
  socket.on('message', (message, { address, port }) => {
    const question = questionIn(message)
    questions.push(question)
    const answer = answerTo(question)
    if (answer !== 'silence') socket.send(reply(message, question, answer), port, address)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  return {
    address: `127.0.0.1:${socket.address().port}`,
    questions,
    stop: async () => {
      socket.close()
      await once(socket, 'close')
    },
  }
}

const HEADER_BYTES = 12

function endOfName(message: Buffer): number {
  let at = HEADER_BYTES
  while ((message[at] ?? 0) !== 0) at += 1 + (message[at] ?? 0)
  return at + 1
}

function questionIn(message: Buffer): Question {
  const end = endOfName(message)
  const labels: string[] = []
  for (let at = HEADER_BYTES; at < end - 1; at += 1 + (message[at] ?? 0)) {
    labels.push(message.toString('latin1', at + 1, at + 1 + (message[at] ?? 0)))
  }
  return { name: labels.join('.').toLowerCase(), type: TYPES[message.readUInt16BE(end)] ?? 'other' }
}

function reply(message: Buffer, { type }: Question, answer: Exclude<Answer, 'silence'>): Buffer {
  const end = endOfName(message)
  const records =
    typeof answer === 'string' ? [] : answer.map(text => recordOf(message.readUInt16BE(end), dataOf(type, text)))
  const header = Buffer.alloc(HEADER_BYTES)
  message.copy(header, 0, 0, 2)
  header.writeUInt16BE(0x8580 | (typeof answer === 'string' ? CODES[answer] : 0), 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(records.length, 6)
  return Buffer.concat([header, message.subarray(HEADER_BYTES, end + 4), ...records])
}

function dataOf(type: Question['type'], text: string): Buffer {
  if (type === 'TXT') return Buffer.concat([Buffer.from([text.length]), Buffer.from(text)])
  return Buffer.from(ipaddr.parse(text).toByteArray())
}

function recordOf(type: number, data: Buffer): Buffer {
  const fixed = Buffer.alloc(12)
  fixed.writeUInt16BE(0xc00c, 0)
  fixed.writeUInt16BE(type, 2)
  fixed.writeUInt16BE(1, 4)
  fixed.writeUInt16BE(data.length, 10)
  return Buffer.concat([fixed, data])
}
