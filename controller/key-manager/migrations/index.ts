import type { Migration } from '../../database/migrate.js'
import { keyManager } from './001-key-manager.js'

export const migrations: readonly Migration[] = [keyManager]
