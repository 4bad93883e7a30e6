import { runningProcesses } from '../../state-directory/run-record.js'
import { print } from '../../terminal.js'
import { down } from '../down.js'
import { startInBackground } from './detach.js'

/** Restarts the controllers, if they run, so that they read krater.yaml again; amphorae keep serving. */
export async function restart(directory: string): Promise<void> {
  if (!runningProcesses(directory).some(({ name }) => name === 'up')) {
    print('Krater is not running: the next start has the new settings.')
    return
  }
  await down(directory)
  await startInBackground(directory)
}
