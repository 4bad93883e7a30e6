import { randomBytes } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { createHandler } from './answers.js'
import { apply, type Parts, releaseOwnVips, resume, resumeDraining } from './apply/apply.js'
import { CURRENT_HAPROXY, CURRENT_KEEPALIVED, openStore } from './apply/store.js'
import { DatagramBalancer } from './datagrams/balancer.js'
import { Monitors } from './datagrams/monitors/monitors.js'
import { endUnfinished } from './datagrams/nftables.js'
import { FlowServer } from './handover/flow-exchange.js'
import { Handovers } from './handover/handover.js'
import { SharedClients } from './handover/shared-clients.js'
import { StickTables } from './handover/stick-tables.js'
import { Drain } from './haproxy/drain.js'
import { Haproxy, type HaproxyEvents } from './haproxy/haproxy.js'
import { createKnownDown } from './haproxy/known-down.js'
import { HAPROXY_MESSAGES } from './haproxy/messages.js'
import { serverStateFile } from './haproxy/server-state-file.js'
import { haproxyVersion } from './haproxy/validate.js'
import { Monitor } from './heartbeat/monitor.js'
import { Sender } from './heartbeat/sender.js'
import { createKeepalived, KEEPALIVED_LOG, type Keepalived, keepalivedVersion } from './keepalived/keepalived.js'
import { machineLimits } from './limits.js'
import { keepBounded } from './log/bounded-files.js'
import { receiveHaproxyLog } from './log/haproxy-receiver.js'
import { AGENT_LOG, createLog, type Log } from './log/log.js'
import { createRepairs, type Repairs } from './log/repairs.js'
import { type CertificateAlarms, describeCertificates } from './metrics/certificates.js'
import { answerMetrics } from './metrics/responder.js'
import { prepareMachine } from './network/configure.js'
import { Responses } from './ocsp/responses.js'
import manifest from './package.json' with { type: 'json' }
import { haproxyGroup } from './ping/ping.js'
import { answerPings } from './ping/responder.js'
import { Turns } from './process/turns.js'
import type { Boot } from './protocol/boot.js'
import type { Desired } from './protocol/desired.js'
import type { Credential } from './protocol/key-manager/credential.js'
import type { ApplyResult, Request } from './protocol/messages.js'
import { LOG_DIRECTORY, STATE_DIRECTORY } from './protocol/paths.js'
import { Reconciler } from './reconcile/reconcile.js'
import { relayConnections } from './relay/relay.js'
import { answerInit } from './server/answer-init.js'
import { type AgentServer, type Handler, serve } from './server/server.js'
import { type KeyManager, openKeyManager } from './tls/key-manager.js'
import { Tls } from './tls/tls.js'
import { failedUpgrade } from './upgrade/trial.js'
import { prepareUpgrade } from './upgrade/upgrade.js'

/** The program of the agent, and how to end it. */
export type AgentProgram = {
  /** Hash of its file. */
  bundle: string
  bootFile: string
  /** Stops the agent and ends its process; the machine starts it again. */
  restart: () => void
}

type AgentOptions = {
  boot: Boot
  program: AgentProgram
  bootId: string
  alarms: CertificateAlarms
  log: Log
  /** Stops the services beside HAProxy and keepalived. */
  stopHelpers: () => Promise<void>
}

/** Adopts the HAProxy and keepalived an earlier agent left running, and then serves requests. */
export async function startAgent(boot: Boot, program: AgentProgram): Promise<Agent> {
  mkdirSync(STATE_DIRECTORY, { recursive: true })
  const log = createLog()
  const bootId = randomBytes(8).toString('hex')
  const version = `${manifest.version}, bundle ${program.bundle.slice(0, 8)}`
  log.info(`agent ${version}, of amphora ${boot.amphoraId} starting, boot ${bootId}`)
  const alarms: CertificateAlarms = { mismatches: 0, takenBack: 0 }
  const stopHelpers = await startHelpers(boot, alarms, log)
  const agent = new Agent({ boot, program, bootId, alarms, log, stopHelpers })
  await agent.start()
  return agent
}

/** @returns a function that stops them */
async function startHelpers(boot: Boot, alarms: CertificateAlarms, log: Log): Promise<() => Promise<void>> {
  const stopBounding = keepBounded([AGENT_LOG, HAPROXY_MESSAGES, KEEPALIVED_LOG])
  const stopReceiving = await receiveHaproxyLog(log)
  prepareMachine(haproxyGroup(), log)
  const stopPings = await answerPings(log)
  const ofCertificates = () => describeCertificates(dirname(CURRENT_HAPROXY), alarms)
  const stopMetrics = await answerMetrics(boot.limits ?? {}, ofCertificates, log)
  return async () => {
    await stopReceiving()
    await stopPings()
    await stopMetrics()
    stopBounding()
  }
}

/** The parts of the agent, wired together. */
export class Agent {
  readonly #log: Log
  readonly #program: AgentProgram
  readonly #stopHelpers: () => Promise<void>
  readonly #store = openStore()
  readonly #knownDown = createKnownDown()
  /** Serializes changes of the machine; the first is to resume. */
  readonly #turns = new Turns()
  readonly #upgrades = new Turns()
  readonly #alarms: CertificateAlarms
  readonly #repairs: Repairs
  readonly #stickTables: StickTables
  readonly #haproxy: Haproxy
  readonly #keepalived: Keepalived
  readonly #keyManager: KeyManager
  readonly #responses: Responses
  readonly #tls: Tls
  readonly #drain: Drain
  readonly #datagrams: DatagramBalancer
  readonly #parts: Parts
  readonly #sender: Sender
  readonly #handovers: Handovers
  readonly #sharedClients: SharedClients
  readonly #monitor: Monitor
  readonly #handler: Handler
  /** Null until it listens. */
  #server: AgentServer | null = null
  /** Null until requests are served. */
  #reconciler: Reconciler | null = null
  #stopAnswering = () => {}
  #stopRelaying = async () => {}

  constructor({ boot, program, bootId, alarms, log, stopHelpers }: AgentOptions) {
    this.#log = log
    this.#program = program
    this.#alarms = alarms
    this.#stopHelpers = stopHelpers
    this.#repairs = createRepairs(log, alarms)
    this.#stickTables = new StickTables(boot.amphoraId, this.#store.confirmed, log)
    this.#haproxy = new Haproxy({
      configuration: CURRENT_HAPROXY,
      limits: boot.limits ?? {},
      events: this.#haproxyEvents(),
      log,
    })
    this.#keepalived = this.#createKeepalived()
    this.#keyManager = openKeyManager(boot)
    this.#responses = new Responses({ onResponse: () => this.#reconciler?.requestCertificateCheck(), log })
    this.#tls = new Tls({
      keyManager: this.#keyManager,
      haproxy: this.#haproxy,
      current: this.#store.currentDirectory,
      stapleFor: pem => this.#responses.stapleFor(pem),
      log,
    })
    this.#drain = new Drain({
      haproxy: this.#haproxy,
      limits: () => this.#store.confirmed()?.oldWorkers ?? null,
      inTurn: this.#turns.run,
      onClosed: this.#repairs.noteClosed,
      log,
    })
    this.#datagrams = new DatagramBalancer({
      monitors: new Monitors({
        onChange: () => {
          this.#datagrams.membersChanged()
          void this.#monitor.observe()
        },
        onFailure: this.#repairs.note,
        log,
      }),
      onDrift: () => this.#reconciler?.requestDatagramsCheck(),
      log,
    })
    this.#parts = {
      store: this.#store,
      haproxy: this.#haproxy,
      drain: this.#drain,
      knownDown: this.#knownDown,
      keepalived: this.#keepalived,
      datagrams: this.#datagrams,
      tls: this.#tls,
      responses: this.#responses,
      log,
    }
    this.#sender = new Sender(boot, bootId, log)
    const flowServer = new FlowServer(this.#datagrams, log)
    this.#sharedClients = new SharedClients({
      balancer: this.#datagrams,
      server: flowServer,
      desired: this.#store.confirmed,
      log,
    })
    this.#handovers = new Handovers({
      haproxy: this.#haproxy,
      datagrams: this.#datagrams,
      flowServer,
      stickTables: this.#stickTables,
      log,
    })
    this.#monitor = this.#createMonitor(boot)
    this.#handler = this.#createHandler(boot, bootId)
  }

  /** Adopts the programs of an earlier agent, resumes its work, and serves requests. */
  async start(): Promise<void> {
    this.#drain.start()
    this.#haproxy.adopt()
    this.#keepalived.adopt()
    this.#sharedClients.start()
    this.#monitor.start()
    void this.#turns.run(async () => {
      try {
        await endUnfinished()
        await (this.#isDraining() ? resumeDraining : resume)(this.#parts)
      } catch (error) {
        // Such as files that are lost meanwhile; the reconciler restores them.
        this.#log.error(`cannot resume: ${String(error)}`)
      }
      // Now it knows its flows, and tells the other amphora.
      this.#handovers.start()
    })
    void this.#turns.run(this.#observe)
    const server = await serve(this.#handler, this.#log)
    this.#server = server
    this.#stopAnswering = answerInit()
    this.#stopRelaying = await relayConnections(this.#store.confirmed)
    this.#reconciler = new Reconciler({
      parts: this.#parts,
      repairs: this.#repairs,
      server,
      isDraining: this.#isDraining,
      inTurn: this.#turns.run,
    })
    this.#reconciler.start()
  }

  /** Waits until it has adopted what runs, and has done what was asked of it so far. */
  idle(): Promise<void> {
    return this.#turns.idle()
  }

  /** Stops the agent; HAProxy and keepalived keep running. */
  async stop(): Promise<void> {
    this.#stopAnswering()
    this.#reconciler?.stop()
    await this.#server?.close()
    await this.#stopRelaying()
    this.#keyManager.close()
    await this.#turns.idle()
    this.#drain.close()
    this.#handovers.close()
    this.#sharedClients.close()
    this.#haproxy.close()
    this.#keepalived.close()
    await this.#datagrams.close()
    await this.#monitor.stop()
    await this.#sender.close()
    await this.#stopHelpers()
    this.#log.info('agent stopped')
  }

  #haproxyEvents(): HaproxyEvents {
    return {
      beforeRead: () => {
        this.#restoreFiles()
        this.#tls.noteRead()
      },
      onEnd: () => {
        this.#repairs.note('HAProxy exited unexpectedly; restarted')
        this.#monitor.haproxyEnded()
        this.#drain.begin([])
        const part = this.#store.confirmed()?.haproxy
        return part ? serverStateFile(null, part, this.#knownDown.keys()) : ''
      },
      onReady: () => this.#monitor.haproxyReady(),
      beforeReload: async () => {
        this.#stickTables.interrupt()
        await this.#monitor.beforeReload()
      },
    }
  }

  #createKeepalived(): Keepalived {
    const log = this.#log
    return createKeepalived({
      configuration: CURRENT_KEEPALIVED,
      beforeRead: this.#restoreFiles,
      onEnd: () => {
        this.#repairs.note('keepalived exited unexpectedly; restarted')
        releaseOwnVips({ store: this.#store, log }).catch(error => log.error(`cannot release VIPs: ${String(error)}`))
      },
      log,
    })
  }

  #createMonitor(boot: Boot): Monitor {
    return new Monitor({
      store: this.#store,
      haproxy: this.#haproxy,
      datagrams: this.#datagrams,
      knownDown: this.#knownDown,
      sender: this.#sender,
      repairs: this.#repairs,
      isDraining: this.#isDraining,
      getStatus: () => ({ mismatches: this.#reconciler?.mismatches() ?? [], needsApply: this.#needsApply() }),
      onDrift: () => this.#reconciler?.requestHaproxyCheck(),
      beatIntervalMs: boot.beatIntervalSeconds * 1000,
      log: this.#log,
    })
  }

  #createHandler(boot: Boot, bootId: string): Handler {
    const versions = Promise.all([haproxyVersion(), keepalivedVersion()])
    // A failure is reported with the request that awaits the versions.
    versions.catch(() => {})
    return createHandler({
      boot,
      bootId,
      bundle: this.#program.bundle,
      failedUpgrade: failedUpgrade(),
      upgrade: this.#upgrade,
      versions,
      limits: () => machineLimits(boot.limits?.memoryBytes),
      store: this.#store,
      haproxy: this.#haproxy,
      handovers: this.#handovers,
      leaving: () => this.#drain.leaving(),
      missing: () => this.#tls.missing(),
      lend: this.#lend,
      credential: () => this.#keyManager.credential(),
      alarms: this.#alarms,
      needsApply: this.#needsApply,
      inTurn: this.#turns.run,
      apply: this.#apply,
      log: this.#log,
    })
  }

  /** Whether this amphora is draining. */
  readonly #isDraining = (): boolean => this.#handovers.drained() !== null

  readonly #needsApply = (): boolean => this.#reconciler?.needsApply() ?? false

  readonly #observe = (): Promise<void> => this.#monitor.observe()

  readonly #apply = async (desired: Desired): Promise<ApplyResult> => {
    const result = await this.#turns.run(() => apply(this.#parts, desired))
    void this.#turns.run(this.#observe)
    return result
  }

  readonly #upgrade = (request: Extract<Request, { verb: 'upgrade' }>): Promise<void> =>
    this.#upgrades.run(async () => {
      await prepareUpgrade(request, this.#program.bootFile, this.#log)
      // Once this is answered; until then, no change of the machine begins.
      void this.#turns.run(async () => setImmediate(this.#program.restart))
    })

  readonly #lend = (credential: Credential): void => {
    this.#keyManager.lend(credential)
    this.#reconciler?.readMissingNow()
  }

  readonly #restoreFiles = (): void => {
    mkdirSync(LOG_DIRECTORY, { recursive: true })
    for (const text of this.#store.restore()) this.#repairs.note(text)
  }
}
