"""The target `kraft`: this project's own cluster, cluster_image/."""
