import { randomBytes, randomInt } from 'node:crypto'
import { familyOf } from '../../network/address.js'
import { type CheckStatus, checkWords, type FailedCheck } from '../../protocol/checks.js'
import type { DatagramMonitor } from '../../protocol/datagrams.js'
import { echoRequest, isEchoReply } from './echo.js'
import { isExpected, requestText, statusOf } from './http.js'
import type { Exchange, Outcome } from './prober-lines.js'
import { MAX_ANSWER_BYTES } from './prober-program.js'
import { abortPacket, initPacket, readInitAnswer } from './sctp.js'

/** `unknown`: it could not be tried. */
export type ProbeResult = 'passed' | 'unknown' | FailedCheck

/** Carries exchanges out. */
export type Exchanges = {
  /** Never rejects. */
  exchange: (exchange: Exchange) => Promise<Outcome>
  /** Sends a packet without waiting for an answer. */
  send: (exchange: Exchange) => void
  /** 16 bits that no exchange under way has: the source port of an SCTP packet, or the number of an echo request. */
  number: () => number
}

export type Probe = { monitor: DatagramMonitor; address: string; port: number }

type Prober = (exchanges: Exchanges, probe: Probe) => Promise<ProbeResult>

/** How long to wait for errors: the kernel or a router looks for a host on its link for three seconds before it reports one. */
const SILENCE_MS = 4_000
const TOKEN_BYTES = 16
/** What Octavia's probe sends. An empty datagram looks like an end to some servers. */
const ANY_DATAGRAM = Buffer.from('X')

const PROBERS: Readonly<Record<DatagramMonitor['type'], Prober>> = {
  'UDP-CONNECT': probeUdp,
  SCTP: probeSctp,
  TCP: probeTcp,
  HTTP: probeHttp,
  PING: probePing,
}

/** Probes a member once. Never rejects. */
export const probeOnce: Prober = (exchanges, probe) => PROBERS[probe.monitor.type](exchanges, probe)

async function probeUdp(exchanges: Exchanges, { monitor, address, port }: Probe): Promise<ProbeResult> {
  const expected = monitor.exchange && Buffer.from(monitor.exchange.answer, 'hex')
  const outcome = await exchanges.exchange({
    kind: 'udp',
    address,
    port,
    limitMs: Math.max(monitor.timeout * 1000, expected === null ? SILENCE_MS : 0),
    payload: monitor.exchange === null ? ANY_DATAGRAM : Buffer.from(monitor.exchange.payload, 'hex'),
    mostBytes: Math.max(1, expected?.length ?? 0),
  })
  if (expected === null) return outcome.end === 'silent' || outcome.end === 'answer' ? 'passed' : failureOf(outcome)
  if (outcome.end === 'silent') return failed('L7TOUT')
  if (outcome.end !== 'answer') return failureOf(outcome)
  return outcome.bytes.subarray(0, expected.length).equals(expected) ? 'passed' : failed('L7RSP')
}

async function probeSctp(exchanges: Exchanges, { monitor, address, port }: Probe): Promise<ProbeResult> {
  const ports = { own: exchanges.number(), other: port }
  const tag = randomInt(1, 2 ** 32)
  const target = { kind: 'sctp', address, port, limitMs: monitor.timeout * 1000, mostBytes: MAX_ANSWER_BYTES } as const
  const outcome = await exchanges.exchange({ ...target, payload: initPacket(ports, tag) })
  if (outcome.end !== 'answer') return failureOf(outcome)
  const answer = readInitAnswer(outcome.bytes, ports, tag)
  if (answer === null) return failed('L6RSP', 'not an answer to INIT')
  if (answer === 'refused') return failed('L4CON', 'Connection refused (ABORT)')
  exchanges.send({ ...target, payload: abortPacket(ports, answer.peerTag) })
  return 'passed'
}

async function probeTcp(exchanges: Exchanges, { monitor, address, port }: Probe): Promise<ProbeResult> {
  const limitMs = monitor.timeout * 1000
  const payload = Buffer.alloc(0)
  const outcome = await exchanges.exchange({ kind: 'tcp', address, port, limitMs, payload, mostBytes: 1 })
  return outcome.end === 'answer' ? 'passed' : failureOf(outcome)
}

async function probeHttp(exchanges: Exchanges, { monitor, address, port }: Probe): Promise<ProbeResult> {
  if (monitor.http === null) return 'unknown'
  const outcome = await exchanges.exchange({
    kind: 'tcp',
    address,
    port,
    limitMs: monitor.timeout * 1000,
    payload: Buffer.from(requestText(monitor.http, address, port)),
    mostBytes: MAX_ANSWER_BYTES,
  })
  if (outcome.end === 'answer') {
    const status = statusOf(outcome.bytes)
    if (status === null) return failed('L7RSP')
    return isExpected(status, monitor.http.codes) ? 'passed' : { status: 'L7STS', code: status, words: '' }
  }
  if (outcome.end === 'unable' || outcome.stage === 'connecting') return failureOf(outcome)
  return failed(outcome.end === 'silent' ? 'L7TOUT' : 'L7RSP')
}

async function probePing(exchanges: Exchanges, { monitor, address }: Probe): Promise<ProbeResult> {
  const family = familyOf(address)
  const token = randomBytes(TOKEN_BYTES)
  const outcome = await exchanges.exchange({
    kind: 'echo',
    address,
    port: 0,
    limitMs: monitor.timeout * 1000,
    payload: echoRequest(family, exchanges.number(), token),
    mostBytes: 64,
  })
  if (outcome.end !== 'answer') return failureOf(outcome)
  return isEchoReply(family, outcome.bytes, token) ? 'passed' : failed('L4CON', 'not an echo reply')
}

/** What an exchange without an answer says about the other side. */
function failureOf(outcome: Exclude<Outcome, { end: 'answer' }>): 'unknown' | FailedCheck {
  if (outcome.end === 'unable') return 'unknown'
  return outcome.end === 'silent' ? failed('L4TOUT') : failed('L4CON', outcome.words)
}

const failed = (status: CheckStatus, words = ''): FailedCheck => ({ status, code: 0, words: checkWords(words) })
