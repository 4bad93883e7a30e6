import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findPostmaster } from '../../database/postmaster.js'
import { type Cluster, startCluster } from '../../database/private-cluster.js'
import { endProcesses, isAlive, type ProcessIdentity } from '../../process/process-identity.js'
import { rotateLog } from './log-files.js'

const clusterDirectory = (stateDirectory: string): string => join(stateDirectory, 'postgres')

/** The main process of the private PostgreSQL; null when it is not running. */
export const runningPostmaster = (stateDirectory: string): ProcessIdentity | null =>
  findPostmaster(clusterDirectory(stateDirectory))

/** Starts the private PostgreSQL unless it is running. */
export const startPrivateCluster = (stateDirectory: string): Promise<Cluster> =>
  startCluster({ directory: clusterDirectory(stateDirectory), durable: true })

/** Every second, restarts PostgreSQL if it stopped, and rotates its log. @returns a function that stops watching */
export function watchCluster(stateDirectory: string, report: (line: string) => void): () => Promise<void> {
  const ending = new AbortController()
  const watch = async () => {
    while (!ending.signal.aborted) {
      await delay(1_000, undefined, { signal: ending.signal }).catch(() => undefined)
      if (ending.signal.aborted) return
      try {
        rotateLog(join(clusterDirectory(stateDirectory), 'data/server.log'))
        if (runningPostmaster(stateDirectory) !== null) continue
        report('PostgreSQL stopped; restarting it')
        await startPrivateCluster(stateDirectory)
        report('PostgreSQL is running again')
      } catch (error) {
        report(String(error))
      }
    }
  }
  const watching = watch()
  return () => {
    ending.abort()
    return watching
  }
}

/** Stops the private PostgreSQL after a checkpoint. @returns false when it was not running */
export async function stopPrivateCluster(stateDirectory: string): Promise<boolean> {
  const postmaster = runningPostmaster(stateDirectory)
  if (postmaster === null) return false
  // SIGINT is PostgreSQL's fast shutdown.
  await endProcesses([postmaster], { signal: 'SIGINT', graceMs: 20_000 })
  return !isAlive(postmaster)
}
