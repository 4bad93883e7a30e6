import { join } from 'node:path'
import { stringify } from 'yaml'
import { writePrivateFile } from '../../process/private-file.js'

export type Credentials = { username: string; password: string; projectName: string }

export type ClientFiles = {
  /** Ends in /v3. */
  authUrl: string
  /** PEM file with the CAs of the APIs' certificates; null for the client's own. */
  caFile: string | null
  region: string
  demo: Credentials
  admin: Credentials
}

/**
 * Writes the files for OpenStack clients, mode 0600: `openrc` (the demo user) and `admin-openrc` for a shell, and
 * `clouds.yaml` with the clouds `krater` (the demo user) and `krater-admin`.
 */
export function writeClientFiles(directory: string, files: ClientFiles): void {
  writePrivateFile(join(directory, 'openrc'), openrc(files, files.demo))
  writePrivateFile(join(directory, 'admin-openrc'), openrc(files, files.admin))
  writePrivateFile(join(directory, 'clouds.yaml'), clouds(files))
}

function openrc({ authUrl, caFile, region }: ClientFiles, user: Credentials): string {
  const variables = {
    OS_AUTH_TYPE: 'password',
    OS_AUTH_URL: authUrl,
    OS_IDENTITY_API_VERSION: '3',
    OS_USERNAME: user.username,
    OS_PASSWORD: user.password,
    OS_PROJECT_NAME: user.projectName,
    OS_USER_DOMAIN_NAME: 'Default',
    OS_PROJECT_DOMAIN_NAME: 'Default',
    OS_REGION_NAME: region,
    OS_INTERFACE: 'public',
    ...(caFile !== null && { OS_CACERT: caFile }),
  }
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}='${value.replaceAll("'", "'\\''")}'`)
  // Variables set for another cloud in the same shell would take precedence.
  return `unset OS_CLOUD OS_TOKEN OS_PROJECT_ID OS_USER_DOMAIN_ID OS_PROJECT_DOMAIN_ID OS_SYSTEM_SCOPE OS_CACERT\n${lines.join('\n')}\n`
}

function clouds({ authUrl, caFile, region, demo, admin }: ClientFiles): string {
  const cloud = (user: Credentials) => ({
    auth: {
      auth_url: authUrl,
      username: user.username,
      password: user.password,
      project_name: user.projectName,
      user_domain_name: 'Default',
      project_domain_name: 'Default',
    },
    region_name: region,
    identity_api_version: 3,
    interface: 'public',
    ...(caFile !== null && { cacert: caFile }),
  })
  return stringify({ clouds: { krater: cloud(demo), 'krater-admin': cloud(admin) } })
}
