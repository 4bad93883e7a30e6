import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { configurationFile, parseConfiguration } from '../../../config/load.js'
import { writePrivateFile } from '../../../process/private-file.js'
import { withDatabaseFiles } from '../../first-start/host-settings.js'
import { OperatorError } from '../../operator-error.js'
import { readHostRecord, writeHostRecord } from '../../state-directory/host.js'
import { bundledFiles, databaseFileIn, placeFiles, unpackBundle } from '../../state-directory/host-bundle.js'
import { ensureStateDirectory } from '../../state-directory/instance.js'
import { print } from '../../terminal.js'
import { isInitialised } from '../../wiring/instance.js'
import { VERSION } from '../../wiring/this-host.js'

/**
 * Makes the state directory that of another controller host, from the bundle that `krater controller add` made. Safe to
 * repeat after an interruption. A host that has joined keeps its settings and keys, which may be newer than the bundle's.
 * @throws OperatorError when the directory is another host's, or the bundle another version's
 */
export async function join(directory: string, file: string): Promise<void> {
  const other = readHostRecord(directory)
  const isOther = (id: string) => (other === null ? isInitialised(directory) : other.id !== id)
  ensureStateDirectory(directory)
  const { manifest, settings, files } = await unpackBundle(resolve(file), `${directory}/run`)
  const { id, name, version, databaseFiles } = manifest
  if (isOther(id)) {
    throw new OperatorError(
      `${directory} is another controller host already. Set KRATER_STATE_DIR to a new directory, or remove this one with \`krater down --all\`.`,
    )
  }
  if (other !== null && existsSync(configurationFile(directory))) {
    print(`${name} has joined already; its settings and keys stay as they are.`)
    return
  }
  if (version !== VERSION) {
    throw new OperatorError(
      `The bundle is of Krater ${version}, and this is ${VERSION}. Install the same version on all hosts.`,
    )
  }
  writeHostRecord(directory, { id, registered: true })
  const paths = new Map(
    Object.entries(databaseFiles).map(([inBundle, path]) => [path, databaseFileIn(directory, inBundle)]),
  )
  const text = withDatabaseFiles(settings, paths)
  const places = bundledFiles(parseConfiguration(text, {}, `krater.yaml of ${name}`), directory)
  for (const inBundle of Object.keys(databaseFiles)) places.set(inBundle, databaseFileIn(directory, inBundle))
  placeFiles(files, places)
  // Last: with it, the directory is set up.
  writePrivateFile(configurationFile(directory), text)
}
