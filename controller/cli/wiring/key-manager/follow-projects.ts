import type { Database } from '../../../database/connection.js'
import { eraseProject } from '../../../key-manager/erase-project.js'
import { followDeletedProjects } from '../../../key-manager/keystone-listener/follow-deleted-projects.js'
import type { Logger } from '../../../log/log.js'
import { databaseUrl, type Instance, openDatabase } from '../instance.js'

/**
 * Erases the key manager's data of projects that Krater's own identity service deletes, until `stop`. For an external
 * identity service, the keystone-listener does this.
 */
export async function followProjects(
  instance: Instance,
  database: Database,
  log: Logger,
): Promise<{ stop: () => Promise<void> }> {
  if (instance.config.identity.external_url !== undefined) return { stop: async () => undefined }
  const identityDatabase = openDatabase(instance, 'identity', 'key-manager worker', log)
  const following = await followDeletedProjects({
    identityDatabase,
    identityDatabaseUrl: databaseUrl(instance, 'identity'),
    eraseProject: projectId => eraseProject(database, projectId),
    log,
  })
  return {
    stop: async () => {
      await following.stop()
      await identityDatabase.destroy()
    },
  }
}
