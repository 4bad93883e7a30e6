import type { Store } from './apply/store.js'
import { become } from './enrolled/become.js'
import { forward } from './enrolled/forward.js'
import { survey } from './enrolled/survey.js'
import type { Handovers } from './handover/handover.js'
import type { Haproxy } from './haproxy/haproxy.js'
import { type Leaving, leavingSeconds, monotonicMs } from './haproxy/leaving.js'
import { KEEPALIVED_LOG } from './keepalived/keepalived.js'
import type { machineLimits } from './limits.js'
import { HAPROXY_LOG } from './log/haproxy-receiver.js'
import { AGENT_LOG, type Log } from './log/log.js'
import { recentLines } from './log/recent-lines.js'
import type { CertificateAlarms } from './metrics/certificates.js'
import { announceVips } from './network/configure.js'
import { holdsVip, observeNetwork } from './network/observed.js'
import manifest from './package.json' with { type: 'json' }
import type { Boot } from './protocol/boot.js'
import type { Desired } from './protocol/desired.js'
import type { Credential, HeldCredential } from './protocol/key-manager/credential.js'
import type {
  ApplyResult,
  FailedUpgrade,
  HelloResult,
  MissingMaterial,
  Request,
  StatusResult,
} from './protocol/messages.js'
import { PROTOCOL_VERSION } from './protocol/version.js'
import type { Handler } from './server/server.js'
import { isOnTrial, TRIAL_SECONDS } from './upgrade/trial.js'

export type HandlerOptions = {
  boot: Boot
  bootId: string
  /** Hash of the agent's own file. */
  bundle: string
  failedUpgrade: FailedUpgrade | undefined
  /** Prepares an upgrade; the agent restarts once that is answered. */
  upgrade: (request: Extract<Request, { verb: 'upgrade' }>) => Promise<void>
  /** Of HAProxy and keepalived. */
  versions: Promise<readonly [string, string]>
  /** Read anew: the first UDP or SCTP listener may have raised how many flows the kernel tracks. */
  limits: () => ReturnType<typeof machineLimits>
  store: Store
  haproxy: Haproxy
  handovers: Handovers
  /** HAProxy's leaving servers. */
  leaving: () => readonly Leaving[]
  /** What HAProxy lacks of the confirmed state. */
  missing: () => MissingMaterial[]
  /** Takes a credential for the key manager. */
  lend: (credential: Credential) => void
  credential: () => HeldCredential | null
  alarms: CertificateAlarms
  /** Whether the machine differs from the confirmed state in a way that only an apply repairs. */
  needsApply: () => boolean
  /** Runs changes of the machine one at a time. */
  inTurn: <T>(work: () => Promise<T>) => Promise<T>
  apply: (desired: Desired) => Promise<ApplyResult>
  log: Log
}

const LOGS = { agent: AGENT_LOG, haproxy: HAPROXY_LOG, keepalived: KEEPALIVED_LOG }

/** Answers the controller's requests. */
export function createHandler(parts: HandlerOptions): Handler {
  const { store, handovers, inTurn, log } = parts
  return async request => {
    switch (request.verb) {
      case 'hello':
        return hello(parts)
      case 'status':
        return status(parts)
      case 'logs':
        return { lines: recentLines(LOGS, request.lines) }
      case 'apply':
        return parts.apply(request.desired)
      case 'lend':
        parts.lend(request.credential)
        return {}
      case 'proof':
        parts.alarms.mismatches = request.mismatches
        return {}
      case 'announce':
        await announceVips(store.confirmed()?.interfaces ?? [], log)
        return {}
      case 'handover':
        await inTurn(() => handovers.begin(request.handover))
        return { tables: await handovers.tables() }
      case 'drain':
        await inTurn(() => handovers.drain(request.seconds))
        return {}
      case 'upgrade':
        if (request.sha256 !== parts.bundle) await parts.upgrade(request)
        return { trialSeconds: TRIAL_SECONDS }
      case 'become':
        become(parts.boot, request.boot)
        return {}
      case 'forward':
        forward(parts.boot, request.forwarding)
        return {}
      case 'survey':
        return { found: await survey() }
    }
  }
}

async function hello(parts: HandlerOptions): Promise<HelloResult> {
  const { bootId, bundle, failedUpgrade, versions, limits, store, handovers, leaving, needsApply } = parts
  const [haproxyVersion, keepalivedVersion] = await versions
  const confirmed = store.confirmed()
  return {
    turn: parts.boot.host?.turn,
    agentVersion: manifest.version,
    protocolVersion: PROTOCOL_VERSION,
    bundle,
    onTrial: isOnTrial(bundle),
    trialSeconds: TRIAL_SECONDS,
    failedUpgrade,
    bootId,
    haproxyVersion,
    keepalivedVersion,
    appliedGeneration: confirmed?.generation ?? 0,
    appliedSha256: needsApply() ? null : (confirmed?.sha256 ?? null),
    holdsVip: confirmed !== null && holdsVip(confirmed),
    limits: limits(),
    drain: handovers.drained(),
    leavingSeconds: leavingSeconds(leaving(), monotonicMs()),
    answersMetrics: true,
    balancesDatagrams: true,
    missing: parts.missing(),
    credential: parts.credential(),
  }
}

async function status(parts: HandlerOptions): Promise<StatusResult> {
  const { haproxy } = parts
  const [processes, network] = await Promise.all([haproxy.processes(), observeNetwork()])
  const workers = processes ? processes.oldWorkerPids.length + (processes.workerPid === null ? 0 : 1) : 0
  return {
    ...(await hello(parts)),
    haproxy: { running: haproxy.pid() !== null, pid: haproxy.pid(), workers },
    datagramListeners: parts.store.confirmed()?.datagrams?.listeners.length ?? 0,
    interfaces: network.links
      .filter(({ name }) => name !== 'lo')
      .map(({ name, mac }) => ({
        name,
        mac,
        addresses: network.addresses
          .filter(({ device }) => device === name)
          .map(({ address, prefix }) => `${address}/${prefix}`),
      })),
    uptimeSeconds: Math.round(process.uptime()),
  }
}
