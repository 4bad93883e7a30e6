import { existsSync } from 'node:fs'
import { configurationFile, parseConfiguration, readConfiguration } from '../../../config/load.js'
import { networkDriver } from '../../../network/drivers.js'
import { ask } from '../../ask.js'
import { changeSettings } from '../../state-directory/change-settings.js'

const QUESTION = `Load balancers reach members on their own networks. Shall they also reach what this machine reaches: other
machines, containers, the Internet? That turns packet forwarding on; \`krater down --all\` undoes it. (yes/no) `

/**
 * Settles `network.outside` before the first process starts: by --yes, by asking on a terminal, or not at all, in which
 * case load balancers reach nothing beyond their networks and a later start asks again.
 * @param environment gets the answer when krater.yaml does not exist yet: the first start writes it there
 * @throws OperatorError when the question is interrupted
 */
export async function offerOutside(directory: string, yes: boolean, environment: NodeJS.ProcessEnv): Promise<void> {
  const file = configurationFile(directory)
  const { network } = parseConfiguration(readConfiguration(file), environment, file)
  if (network.outside !== undefined || !networkDriver(network.driver).onHost) return
  const isTerminal = process.stdin.isTTY === true && process.stdout.isTTY === true
  if (!yes && !isTerminal) return
  const answer = String(yes || ['yes', 'y'].includes(await ask(QUESTION)))
  if (existsSync(file)) changeSettings(directory, [`network.outside=${answer}`])
  else environment.KRATER_NETWORK_OUTSIDE = answer
}

/** What an operator reads who was not asked. */
export const OUTSIDE_UNDECIDED =
  'Load balancers reach members on their own networks only. To let them reach what this machine reaches: krater settings --restart network.outside=true'
