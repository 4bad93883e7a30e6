import fc from 'fast-check'
import t from 'tap'
import { isExpected, requestText, statusOf } from '../../../amphora-agent/datagrams/monitors/http.js'
import { type Exchanges, probeOnce } from '../../../amphora-agent/datagrams/monitors/probe.js'
import {
  type Exchange,
  type Outcome,
  parseOutcome,
  requestLine,
} from '../../../amphora-agent/datagrams/monitors/prober-lines.js'
import { firstPause, nextStart, phaseOf } from '../../../amphora-agent/datagrams/monitors/schedule.js'
import { abortPacket, crc32c, initPacket, readInitAnswer } from '../../../amphora-agent/datagrams/monitors/sctp.js'
import { type DatagramMonitor, datagramsSchema } from '../../../amphora-agent/protocol/datagrams.js'

const PORTS = { own: 50_001, other: 3_868 }
const TAG = 0x0a0b0c0d
const HTTP = { method: 'GET', path: '/health?full=1', version: '1.1', host: null, codes: '200' } as const
const MONITOR: DatagramMonitor = {
  type: 'UDP-CONNECT',
  delay: 5,
  timeout: 2,
  rise: 2,
  fall: 3,
  http: null,
  exchange: null,
}

const bytes = (max: number) => fc.uint8Array({ maxLength: max }).map(array => Buffer.from(array))

/** An INIT ACK as another implementation would send it. */
function initAck(tag: number, peerTag: number): Buffer {
  const packet = initPacket({ own: PORTS.other, other: PORTS.own }, peerTag)
  packet.writeUInt32BE(tag, 4)
  packet.writeUInt8(2, 12)
  return packet
}

t.test('CRC32c has the values of RFC 3720, appendix B.4', async t => {
  t.equal(crc32c(Buffer.alloc(32)), 0x8a9136aa)
  t.equal(crc32c(Buffer.alloc(32, 0xff)), 0x62a8ab43)
  t.equal(crc32c(Uint8Array.from({ length: 32 }, (_, at) => at)), 0x46dd794e)
})

t.test('an INIT is answered by its INIT ACK or ABORT and by nothing else', async t => {
  const init = initPacket(PORTS, TAG)
  t.equal(init.length, 32)
  t.match(init.toString('hex'), /^c3510f1c00000000.{8}01000014/)
  t.same(readInitAnswer(initAck(TAG, 7), PORTS, TAG), { peerTag: 7 })
  const abort = abortPacket({ own: PORTS.other, other: PORTS.own }, TAG)
  t.equal(readInitAnswer(abort, PORTS, TAG), 'refused')
  t.equal(readInitAnswer(initAck(TAG + 1, 7), PORTS, TAG), null, 'another tag')
  t.equal(readInitAnswer(initAck(TAG, 7), { ...PORTS, own: 50_002 }, TAG), null, 'another port')
  t.equal(readInitAnswer(initAck(TAG, 0), PORTS, TAG), null, 'no tag')
  t.equal(readInitAnswer(init, PORTS, TAG), null, 'its own packet')
  for (let length = 0; length < 32; length++) {
    t.equal(readInitAnswer(initAck(TAG, 7).subarray(0, length), PORTS, TAG), null, `${length} bytes of it`)
  }
})

t.test('no packet makes the SCTP parser fail, and none without the tag passes', async () => {
  const behindHeader = bytes(64).map(rest =>
    Buffer.concat([abortPacket({ own: PORTS.other, other: PORTS.own }, TAG), rest]),
  )
  fc.assert(
    fc.property(
      fc.oneof(bytes(64), behindHeader),
      fc.integer({ min: 0, max: 79 }),
      fc.nat(255),
      (packet, at, value) => {
        if (at < packet.length) packet[at] = value
        const answer = readInitAnswer(packet, PORTS, TAG)
        return answer === null || packet.readUInt32BE(4) === TAG
      },
    ),
  )
})

t.test('the status of an HTTP answer is read strictly', async t => {
  const read = (text: string) => statusOf(Buffer.from(text))
  t.equal(read('HTTP/1.1 200 OK\r\nServer: x\r\n'), 200)
  t.equal(read('HTTP/1.0 503\n'), 503)
  t.equal(read('HTTP/1.1 204 \r\n'), 204)
  const bad = ['', 'HTTP/1.1 200', 'HTTP/1.1 200 OK', 'HTTP/2 200\r\n', ' HTTP/1.1 200 OK\r\n', 'HTTP/1.1 2000\r\n']
  for (const text of [...bad, 'HTTP/1.1 099 x\r\n', 'HTTP/1.1  200\r\n', '200 OK\r\n', 'HTTP/1.1 20\r0 OK\r\n']) {
    t.equal(read(text), null, JSON.stringify(text))
  }
  fc.assert(
    fc.property(bytes(200), answer => {
      const status = statusOf(answer)
      return status === null || answer.toString('latin1').startsWith('HTTP/1.')
    }),
  )
  t.same(
    [200, 202, 203, 205].map(status => isExpected(status, '200, 202')),
    [true, true, false, false],
  )
  t.same(
    [199, 200, 204, 205].map(status => isExpected(status, '200-204')),
    [false, true, true, false],
  )
})

t.test('a request of an HTTP probe names the host, and nothing in it ends its line', async t => {
  t.equal(
    requestText(HTTP, '2001:db8::1', 80),
    'GET /health?full=1 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\nConnection: close\r\n\r\n',
  )
  t.match(requestText({ ...HTTP, host: 'example.org' }, '192.0.2.1', 80), '\r\nHost: example.org\r\n')
  const { monitor } = datagramsSchema.shape.pools.element.shape
  const isAllowed = (http: object) =>
    monitor.safeParse({ ...MONITOR, type: 'HTTP', http: { ...HTTP, ...http } }).success
  t.ok(isAllowed({ host: 'example.org', codes: '200 , 301' }))
  const bad = [
    { path: '/ x' },
    { path: '/\r\nX: y' },
    { path: 'x' },
    { method: 'GET /' },
    { host: 'a\nb' },
    { host: '' },
  ]
  for (const http of [...bad, { codes: '200-' }, { codes: '2000' }, { codes: '' }]) {
    t.notOk(isAllowed(http), JSON.stringify(http))
  }
})

t.test('lines to and from the prober are understood or refused as a whole', async t => {
  const exchange: Exchange = {
    kind: 'udp',
    address: '2001:DB8::1',
    port: 53,
    limitMs: 2000,
    payload: Buffer.from('ab', 'hex'),
    mostBytes: 4,
  }
  t.equal(requestLine(7, exchange), '7 udp 2001:db8::1 53 2000 ab 4\n')
  t.equal(requestLine(0, { ...exchange, payload: Buffer.alloc(0) }), '0 udp 2001:db8::1 53 2000 - 4\n')
  const good: [string, Outcome][] = [
    ['7 answer 00ff', { end: 'answer', bytes: Buffer.from([0, 255]) }],
    ['7 answer -', { end: 'answer', bytes: Buffer.alloc(0) }],
    ['7 silent open', { end: 'silent', stage: 'open' }],
    ['7 failed connecting No route to host', { end: 'failed', stage: 'connecting', words: 'No route to host' }],
    ['7 unable Too many open files', { end: 'unable', words: 'Too many open files' }],
  ]
  for (const [line, outcome] of good) t.same(parseOutcome(line), { id: 7, outcome }, line)
  const bad = ['', 'ready', '7', '7 answer', '7 answer 0', '7 answer xy', '7 silent', '7 silent open x', '7 failed x y']
  for (const line of [...bad, '-7 answer 00', '7  answer 00', '7 gone open']) t.equal(parseOutcome(line), null, line)
  fc.assert(fc.property(fc.string(), line => parseOutcome(line) === null || /^\d+ /.test(line)))
})

/** @returns what a probe finds when the other side acts so, and what it has asked for */
async function probed(monitor: Partial<DatagramMonitor>, outcome: Outcome) {
  const asked: Exchange[] = []
  const exchanges: Exchanges = {
    exchange: async exchange => {
      asked.push(exchange)
      return outcome
    },
    send: () => {},
    number: () => 2000,
  }
  const result = await probeOnce(exchanges, { monitor: { ...MONITOR, ...monitor }, address: '192.0.2.1', port: 53 })
  return { result, limitMs: asked[0]?.limitMs }
}

t.test('each end of an exchange is a success, a failure with its cause, or unknown', async t => {
  const answer = (text: string): Outcome => ({ end: 'answer', bytes: Buffer.from(text) })
  const refused: Outcome = { end: 'failed', stage: 'connecting', words: 'Connection refused' }
  const reset: Outcome = { end: 'failed', stage: 'open', words: 'Connection reset by peer' }
  const silent: Outcome = { end: 'silent', stage: 'open' }
  const exchange = { payload: '', answer: '706f6e67' }
  const http = { type: 'HTTP', http: HTTP } as const
  const cases: [Partial<DatagramMonitor>, Outcome, string][] = [
    [{}, silent, 'passed'],
    [{}, answer('x'), 'passed'],
    [{}, refused, 'L4CON Connection refused'],
    [{ exchange }, answer('pong!'), 'passed'],
    [{ exchange }, answer('pon'), 'L7RSP'],
    [{ exchange }, silent, 'L7TOUT'],
    [{ exchange: { payload: '', answer: '' } }, answer(''), 'passed'],
    [{ exchange: { payload: '', answer: '' } }, silent, 'L7TOUT'],
    [{ type: 'TCP' }, answer(''), 'passed'],
    [{ type: 'TCP' }, { end: 'silent', stage: 'connecting' }, 'L4TOUT'],
    [{ type: 'SCTP' }, silent, 'L4TOUT'],
    [{ type: 'SCTP' }, answer('garbage'), 'L6RSP not an answer to INIT'],
    [{ type: 'PING' }, silent, 'L4TOUT'],
    [{ type: 'PING' }, answer('a forged reply'), 'L4CON not an echo reply'],
    [http, answer('HTTP/1.1 200 OK\r\n'), 'passed'],
    [http, answer('HTTP/1.1 302 Found\r\n'), 'L7STS 302'],
    [http, answer('SSH-2.0\r\n'), 'L7RSP'],
    [http, silent, 'L7TOUT'],
    [http, reset, 'L7RSP'],
    [http, refused, 'L4CON Connection refused'],
    ...(['UDP-CONNECT', 'SCTP', 'TCP', 'PING', 'HTTP'] as const).map(
      (type): [Partial<DatagramMonitor>, Outcome, string] => [
        { type, http: HTTP },
        { end: 'unable', words: 'Too many open files' },
        'unknown',
      ],
    ),
  ]
  for (const [monitor, outcome, expected] of cases) {
    const { result } = await probed(monitor, outcome)
    const found = typeof result === 'string' ? result : `${result.status} ${result.code || result.words}`.trim()
    t.equal(found, expected, JSON.stringify([monitor, outcome]))
  }
})

t.test('silence counts as a success once a missing host would have been noticed', async t => {
  const silent: Outcome = { end: 'silent', stage: 'open' }
  const exchange = { payload: '', answer: '' }
  const limitOf = async (monitor: Partial<DatagramMonitor>) => (await probed(monitor, silent)).limitMs
  t.equal(await limitOf({ timeout: 2 }), 4000)
  t.equal(await limitOf({ timeout: 9 }), 9000)
  t.equal(await limitOf({ timeout: 2, exchange }), 2000, 'an answer is late after the timeout')
})

t.test('probes keep to their delay, never overlap, and are spread over it', async t => {
  const time = fc.integer({ min: 0, max: 1e7 })
  const seconds = fc.integer({ min: 1, max: 60 })
  fc.assert(
    fc.property(time, fc.integer({ min: 0, max: 1e5 }), seconds, fc.string(), (started, took, delay, subject) => {
      const delayMs = delay * 1000
      const phase = phaseOf(subject, delayMs)
      const ended = started + took
      const next = nextStart(started, ended, phase, delayMs)
      const inTime = next >= started + delayMs / 2 && next < started + delayMs * 1.5
      return next === ended ? took >= delayMs / 2 : next > ended && inTime && (next - phase) % delayMs === 0
    }),
  )
  const tenths = Array<number>(10).fill(0)
  for (let member = 0; member < 1000; member++) {
    const tenth = Math.floor(phaseOf(`pool 10.0.${member >> 8}.${member & 255} 53`, 5000) / 500)
    tenths[tenth] = (tenths[tenth] ?? 0) + 1
  }
  t.ok(Math.max(...tenths) < 150, `of 1,000 probes in ten parts of the delay: ${tenths}`)
  t.same([firstPause(0), firstPause(999)], [0, 999])
})
