import type { ProbeJob, ProbeResult } from '../probe/job.js'

/** One way from this machine to an address. */
export type Route = {
  /** Carries out a probe there, within the time of the signal. Never throws for what the other side does. */
  probe: (job: ProbeJob, signal: AbortSignal) => Promise<ProbeResult>
}

/** How validations get to the networks of projects. */
export type Reach = {
  /** Networks that no validation may contact, whoever asks: this machine's addresses and the management network. */
  forbidden: () => Promise<readonly string[]>
  /** The way to an address on a network that the project may use; null if there is none. */
  routeTo: (projectId: string, address: string) => Promise<Route | null>
}
