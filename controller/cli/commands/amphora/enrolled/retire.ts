import { readFileSync } from 'node:fs'
import { Argument, Option } from 'commander'
import { EnrolmentError } from '../../../../compute/enrolled/enrolment/enrolment-error.js'
import { undo } from '../../../../compute/enrolled/enrolment/install.js'
import { HostSession, type SshIdentity } from '../../../../compute/enrolled/enrolment/session.js'
import { beginRetirement, type EnrolledHost, enrolledHosts, forgetHost } from '../../../../compute/enrolled/hosts.js'
import type { Database } from '../../../../database/connection.js'
import { ask } from '../../../ask.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { keyFiles } from '../../../state-directory/keys.js'
import { print, visible, visibleLines } from '../../../terminal.js'
import type { Instance } from '../../../wiring/instance.js'
import { withRows } from '../with-rows.js'
import { identityOf } from './destination.js'

type Given = { host: string; identity?: string; forget?: true; yes?: true }

export const command: Command = {
  arguments: [new Argument('<host>', 'name or address of an enrolled host')],
  options: [
    new Option(
      '--identity <file>',
      'private key to log in with; by default the operators’ key, and those of your SSH client',
    ),
    new Option('--forget', 'forget a host that is gone for good, without undoing anything on it'),
    new Option('--yes', 'ask nothing'),
  ],
  run: (directory, given) => withRows(directory, (instance, database) => retire(instance, database, given as Given)),
}

async function retire(instance: Instance, database: Database, given: Given): Promise<void> {
  const host = await hostNamed(database, given.host)
  const what =
    given.forget === true
      ? 'Forget it, and leave it as it is?'
      : 'Undo everything that its enrolment has changed there?'
  if (given.yes === undefined) {
    if (!process.stdin.isTTY) throw new OperatorError('Nobody is there to answer. Add --yes. Nothing was changed.')
    if (!['y', 'yes'].includes(await ask(`${host.name} (${host.address}) is ${host.state}. ${what} [y/N] `))) return
  }
  if (!(await beginRetirement(database, host.id))) throw new OperatorError(busy(host))
  if (given.forget === undefined) {
    for (const kept of await undoOn(instance, host, given)) print(visible(kept))
  }
  await forgetHost(database, host.id)
  print(given.forget === true ? `${host.name} is forgotten.` : `${host.name} is retired: it is as it was before.`)
}

async function undoOn(instance: Instance, host: EnrolledHost, { identity }: Given): Promise<string[]> {
  const destination = { user: host.login, host: host.address, port: host.port }
  try {
    const session = await HostSession.open(destination, host.hostKey, identitiesFor(instance, identity))
    try {
      await session.becomeRoot(host.login)
      return await undo(session, host.id)
    } finally {
      session.close()
    }
  } catch (error) {
    if (!(error instanceof EnrolmentError)) throw error
    throw new OperatorError(
      `${host.name} is not retired yet: ${visibleLines(error.message)}\nNo amphora gets it. The same command goes on; for a host that is gone for good, add --forget.`,
    )
  }
}

/** An enrolment that was interrupted early has not put the operators' key there. */
function identitiesFor({ config, directory }: Instance, file: string | undefined): SshIdentity {
  const own = identityOf(file)
  return { ...own, privateKeys: [readFileSync(keyFiles(config, directory).operatorSsh), ...own.privateKeys] }
}

async function hostNamed(database: Database, name: string): Promise<EnrolledHost> {
  const host = (await enrolledHosts(database)).find(one => one.name === name || one.address === name || one.id === name)
  if (host === undefined) throw new OperatorError(`No host ${name} is enrolled. \`krater amphora hosts\` lists all.`)
  return host
}

const busy = ({ name, amphoraId }: EnrolledHost): string =>
  `${name} carries the amphora ${amphoraId}. Delete its load balancer, or move it with \`openstack loadbalancer amphora failover ${amphoraId}\` while another host is free. Nothing was changed.`
