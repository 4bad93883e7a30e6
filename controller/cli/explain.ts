import { EnrolmentError } from '../compute/enrolled/enrolment/enrolment-error.js'
import { loadConfiguration } from '../config/load.js'
import { UnusableDatabase } from '../database/unusable-database.js'
import { IpCommandError } from '../network/local/ip-command.js'
import { ConfigurationError } from '../options/configuration-error.js'
import { type DatabasePlace, databaseFault } from './faults/database-fault.js'
import { type Fault, sentenceOf } from './faults/fault.js'
import { systemFault } from './faults/system-fault.js'
import { OperatorError } from './operator-error.js'
import { usesPrivateCluster, withoutPassword } from './state-directory/database-urls.js'
import { visibleLines } from './terminal.js'

/**
 * The text and exit status for an error of a command on a state directory. Ordinary faults get a sentence and the way
 * out. Any other error is a bug and shows its stack.
 */
export function explain(error: unknown, directory: string): { text: string; exitStatus: number } {
  if (error instanceof OperatorError) return { text: error.message, exitStatus: error.exitStatus }
  if (error instanceof ConfigurationError || error instanceof UnusableDatabase) {
    return { text: error.message, exitStatus: 1 }
  }
  // It may quote the host.
  if (error instanceof EnrolmentError) return { text: visibleLines(error.message), exitStatus: 1 }
  if (error instanceof IpCommandError) {
    return {
      text: `${error.message.replace(/\.$/, '')}. \`krater doctor\` checks what this machine lacks.`,
      exitStatus: 1,
    }
  }
  const fault = faultOf(error, directory)
  if (fault !== null) return { text: sentenceOf(fault), exitStatus: 1 }
  return { text: error instanceof Error ? (error.stack ?? error.message) : String(error), exitStatus: 1 }
}

/** The ordinary fault behind an error of PostgreSQL, a file or a program; null when there is none. */
export const faultOf = (error: unknown, directory: string): Fault | null =>
  databaseFault(error, databaseOf(directory)) ?? systemFault(error)

/** Never fails: it is asked while another error is being explained. */
function databaseOf(directory: string): DatabasePlace {
  try {
    const config = loadConfiguration(directory, process.env)
    const { url, identity, network, load_balancer, key_manager } = config.database
    const first = url ?? identity ?? network ?? load_balancer ?? key_manager
    return {
      url: first === undefined ? null : withoutPassword(first),
      privateIn: first !== undefined && usesPrivateCluster(config, directory) ? directory : null,
    }
  } catch {
    return { url: null, privateIn: null }
  }
}
