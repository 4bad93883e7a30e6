import { readFileSync } from 'node:fs'
import { configurationFile } from '../../config/load.js'
import { eraseProject } from '../../key-manager/erase-project.js'
import { startKeystoneListener } from '../../key-manager/keystone-listener/listener.js'
import type { KeystoneNotifications } from '../../key-manager/keystone-listener/options.js'
import type { Transport } from '../../key-manager/keystone-listener/transport-url.js'
import { createLog } from '../../log/log.js'
import type { Command } from '../command.js'
import { OperatorError } from '../operator-error.js'
import { openDatabase, openInstance } from '../wiring/instance.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runKeystoneListener }

/** Erases the key manager's data of projects that an external identity service deletes, until a signal to stop. */
export async function runKeystoneListener(directory: string): Promise<void> {
  const instance = openInstance(directory)
  const settings = instance.config.key_manager.keystone_notifications
  const transport = requireTransport(settings, directory)
  const certificateAuthority = readCertificateAuthority(settings)
  const log = createLog('keystone-listener', instance.config.log_level)
  await runUntilStopped({ name: 'keystone-listener', stateDirectory: directory, log }, async () => {
    const database = openDatabase(instance, 'key_manager', 'keystone-listener', log)
    const listener = startKeystoneListener({
      transport,
      ...(certificateAuthority === undefined ? {} : { certificateAuthority }),
      settings,
      eraseProject: projectId => eraseProject(database, projectId),
      log,
    })
    return async () => {
      await listener.stop()
      await database.destroy()
    }
  })
}

function requireTransport({ enable, transport_url }: KeystoneNotifications, directory: string): Transport {
  const group = 'key_manager.keystone_notifications'
  if (!enable) {
    throw new OperatorError(
      `${group}.enable is false in ${configurationFile(directory)}, so there is nothing to listen to. Krater's own identity service needs no message bus for deleted projects. For an external one, set enable to true and set transport_url.`,
    )
  }
  if (transport_url === undefined) {
    throw new OperatorError(
      `${group}.transport_url is not set in ${configurationFile(directory)}. Set it to the message bus of the identity service, such as amqp://user:password@host:5672/virtual-host.`,
    )
  }
  return transport_url
}

function readCertificateAuthority({ ca_file }: KeystoneNotifications): string | undefined {
  if (ca_file === undefined) return undefined
  try {
    return readFileSync(ca_file, 'utf8')
  } catch (error) {
    throw new OperatorError(`key_manager.keystone_notifications.ca_file cannot be read: ${(error as Error).message}`)
  }
}
