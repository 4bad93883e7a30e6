import { Argument, Option } from 'commander'
import { one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Command } from '../../command.js'
import { requireRoot } from '../../host/checks.js'
import { OperatorError } from '../../operator-error.js'
import { readHostRecord } from '../../state-directory/host.js'
import { print } from '../../terminal.js'
import { withRows } from '../amphora/with-rows.js'
import { removeImage } from './image-store.js'
import { requireTag } from './tag.js'

export const command: Command = {
  arguments: [new Argument('<tag>', 'tag of the image')],
  options: [new Option('--force', 'though amphorae run on it, which cannot be started again then').default(false)],
  run: async (stateDirectory, { tag, force }) => {
    requireRoot()
    const name = requireTag(String(tag))
    if (force !== true) await requireUnused(stateDirectory, name)
    await removeImage(stateDirectory, name)
    print(`The image ${name} is gone.`)
  },
}

/** @throws OperatorError if amphorae of this host run on the image; other hosts have images of their own */
async function requireUnused(stateDirectory: string, tag: string): Promise<void> {
  const hostId = readHostRecord(stateDirectory)?.id ?? null
  const { count } = await withRows(stateDirectory, (_instance, database) =>
    one(
      database,
      sql<{
        count: number
      }>`SELECT count(*)::int AS count FROM amphora
          WHERE image_tag = ${tag} AND image_id IS NOT NULL AND (host_id IS NULL OR host_id = ${hostId}::uuid)`,
    ),
  )
  if (count === 0) return
  throw new OperatorError(
    `${count === 1 ? 'One amphora runs' : `${count} amphorae run`} on the image ${tag}. \`krater amphora list\` shows them; --force removes it nevertheless.`,
  )
}
