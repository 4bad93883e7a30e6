import type { ApiClient } from '../../../controller/cli/api-client.js'

/** Stores bytes at the key manager. @returns their reference */
export async function storeSecret(api: ApiClient, bytes: Buffer): Promise<string> {
  const body = {
    payload: bytes.toString('base64'),
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  }
  return ((await api.request('key-manager', 'POST', '/v1/secrets', body)) as { secret_ref: string }).secret_ref
}
